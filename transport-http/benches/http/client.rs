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

/// Counts what comes, up to its end.
pub(crate) struct Tally<'a> {
    counted: memmem::Finder<'a>,
    end: memmem::Finder<'a>,
    pub(crate) count: usize,
    counted_to: usize,
    searched_to: usize,
}

impl<'a> Tally<'a> {
    pub(crate) fn new(counted: &'a [u8], end: &'a [u8]) -> Self {
        let (counted, end) = (memmem::Finder::new(counted), memmem::Finder::new(end));
        Self { counted, end, count: 0, counted_to: 0, searched_to: 0 }
    }

    /// Looks at what was read since the last look, and says whether the end was in it. Forgets what can be no part of a mark
    /// when that is much.
    pub(crate) fn look(&mut self, read: &mut Vec<u8>) -> bool {
        let (counted, end) = (self.counted.needle().len(), self.end.needle().len());
        while let Some(at) = self.counted.find(&read[self.counted_to..]) {
            self.count += 1;
            self.counted_to += at + counted;
        }
        let ended = self.end.find(&read[self.searched_to..]).is_some();
        // The next read may bring the rest of a mark.
        self.counted_to = self.counted_to.max(read.len().saturating_sub(counted - 1));
        self.searched_to = read.len().saturating_sub(end - 1);
        if read.len() > 1 << 20 {
            let gone = self.counted_to.min(self.searched_to);
            read.drain(..gone);
            self.counted_to -= gone;
            self.searched_to -= gone;
        }
        ended
    }
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
        let mut tally = Tally::new(mark, mark);
        while !tally.look(&mut self.read) {
            if self.stream.read_buf(&mut self.read).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
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
