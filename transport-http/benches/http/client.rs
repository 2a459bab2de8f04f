//! A raw client: requests as bytes, answers up to their end.

use std::io;
use std::net::SocketAddr;

use memchr::memmem;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A POST of a call.
pub(crate) fn call(tool: &str, arguments: &str) -> Vec<u8> {
    post("tools/call", Some(tool), &format!(r#""name":"{tool}","arguments":{arguments},"#))
}

/// A POST of any request.
pub(crate) fn post(method: &str, name: Option<&str>, params: &str) -> Vec<u8> {
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{params}"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{{"name":"bench","version":"0"}},"io.modelcontextprotocol/clientCapabilities":{{}},"progressToken":1}}}}}}"#
    );
    let name = name.map(|name| format!("Mcp-Name: {name}\r\n")).unwrap_or_default();
    format!(
        "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n\
         Mcp-Method: {method}\r\n{name}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// A connection and what it has read of the current answer.
pub(crate) struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, read: Vec::with_capacity(4096) })
    }

    /// A connection whose own buffer holds little.
    pub(crate) async fn open_narrow(address: SocketAddr) -> io::Result<Self> {
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(4096)?;
        Ok(Self { stream: socket.connect(address).await?, read: Vec::with_capacity(4096) })
    }

    pub(crate) async fn send(&mut self, request: &[u8]) -> io::Result<()> {
        self.read.clear();
        self.stream.write_all(request).await
    }

    /// Reads until what came holds `mark`.
    pub(crate) async fn until(&mut self, mark: &[u8]) -> io::Result<()> {
        self.count_until(mark, mark).await.map(drop)
    }

    /// Reads until what came holds `end`, and counts how often it held `counted`.
    pub(crate) async fn count_until(&mut self, counted: &[u8], end: &[u8]) -> io::Result<usize> {
        let (counter, finder) = (memmem::Finder::new(counted), memmem::Finder::new(end));
        let (mut count, mut counted_to, mut searched_to) = (0, 0, 0);
        loop {
            while let Some(at) = counter.find(&self.read[counted_to..]) {
                count += 1;
                counted_to += at + counted.len();
            }
            if finder.find(&self.read[searched_to..]).is_some() {
                return Ok(count);
            }
            // The next read may bring the rest of a mark.
            let len = self.read.len();
            counted_to = counted_to.max(len.saturating_sub(counted.len() - 1));
            searched_to = len.saturating_sub(end.len() - 1);
            if len > 1 << 20 {
                let gone = counted_to.min(searched_to);
                self.read.drain(..gone);
                counted_to -= gone;
                searched_to -= gone;
            }
            if self.stream.read_buf(&mut self.read).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Forgets what it has read.
    pub(crate) fn forget(&mut self) {
        self.read.clear();
    }

    /// One request and its whole answer, which ends with `end`.
    pub(crate) async fn round_trip(&mut self, request: &[u8], end: &[u8]) -> io::Result<()> {
        self.send(request).await?;
        loop {
            if self.stream.read_buf(&mut self.read).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if self.read.ends_with(end) {
                return Ok(());
            }
        }
    }
}
