//! A raw HTTP/1.1 client over one socket: it sends exactly what it is given, and reads an answer piece by piece, so that
//! a check can say in which order things arrived.

use serde_json::{Value, json};
use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// How long any one read may take: a guard against hanging, not a measure.
pub(crate) const GUARD: Duration = Duration::from_secs(30);
/// How long one connection may be read from, whatever comes: comments must not keep a check alive for ever.
const LIFETIME: Duration = Duration::from_secs(45);
/// Longest line of an answer, and longest body, in bytes.
const LONGEST: u64 = 16 << 20;

/// A connection with one answer on it at a time.
pub(crate) struct Peer {
    reader: BufReader<TcpStream>,
    framing: Framing,
    until: Instant,
    /// What was read of the body and not yet used.
    pending: Vec<u8>,
}

/// How the end of a body is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Length(u64),
    Chunked,
    UntilClose,
    Over,
}

/// The status and the headers of an answer, names in lower case.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
}

impl Head {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    /// All headers, in the order in which they came.
    pub(crate) fn headers(&self) -> &[(String, String)] {
        &self.headers
    }

    /// Whether the body is a stream of events.
    pub(crate) fn is_stream(&self) -> bool {
        self.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"))
    }
}

/// A whole answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) head: Head,
    pub(crate) body: String,
}

impl Answer {
    /// The last message in it, whichever form it has.
    pub(crate) fn message(&self) -> Option<Value> {
        let text = if self.head.is_stream() {
            self.body.lines().filter_map(|line| line.strip_prefix("data:")).next_back().unwrap_or_default()
        } else {
            &self.body
        };
        serde_json::from_str(text).ok()
    }
}

/// One block of a stream of events.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Event {
    Message(Value),
    /// A comment, or an event without data.
    Quiet,
}

impl Peer {
    pub(crate) fn connect(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(GUARD))?;
        stream.set_write_timeout(Some(GUARD))?;
        stream.set_nodelay(true)?;
        let until = Instant::now() + LIFETIME;
        Ok(Self { reader: BufReader::new(stream), framing: Framing::Over, until, pending: Vec::new() })
    }

    pub(crate) fn send(&mut self, text: &str) -> io::Result<()> {
        self.reader.get_mut().write_all(text.as_bytes())
    }

    /// How long the next reads wait; a read that waited as long is an error of kind `WouldBlock` or `TimedOut`.
    pub(crate) fn wait_at_most(&self, limit: Duration) -> io::Result<()> {
        self.reader.get_ref().set_read_timeout(Some(limit))
    }

    /// Ends the connection in both directions, at once.
    pub(crate) fn hang_up(self) {
        // An error: it has ended already.
        let _gone = self.reader.get_ref().shutdown(Shutdown::Both);
    }

    /// Ends the own direction: nothing more will be sent.
    pub(crate) fn half_close(&self) -> io::Result<()> {
        self.reader.get_ref().shutdown(Shutdown::Write)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if (&mut self.reader).take(LONGEST).read_line(&mut line)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_string())
    }

    /// The head of the next answer.
    pub(crate) fn head(&mut self) -> io::Result<Head> {
        let first = self.line()?;
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| bad(format!("no status line: {first:?}")))?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').ok_or_else(|| bad(format!("no header: {line:?}")))?;
            headers.push((name.to_ascii_lowercase(), value.trim().to_string()));
        }
        let head = Head { status, headers };
        let chunked = head.header("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"));
        let length = head.header("content-length").and_then(|length| length.parse().ok());
        self.framing = match (chunked, length) {
            (true, _) => Framing::Chunked,
            (false, Some(length)) => Framing::Length(length),
            (false, None) if status == 204 || status == 304 => Framing::Over,
            (false, None) => Framing::UntilClose,
        };
        self.pending.clear();
        Ok(head)
    }

    /// Reads one more piece of the body; false at its proper end.
    fn piece(&mut self) -> io::Result<bool> {
        if Instant::now() > self.until {
            return Err(io::Error::new(ErrorKind::TimedOut, format!("no end within {LIFETIME:?}")));
        }
        let size = match self.framing {
            Framing::Over => return Ok(false),
            Framing::UntilClose => {
                let piece = self.reader.fill_buf()?;
                let read = piece.len();
                self.pending.extend_from_slice(piece);
                self.reader.consume(read);
                return Ok(read > 0);
            }
            Framing::Length(left) => {
                self.framing = Framing::Over;
                left
            }
            Framing::Chunked => {
                let line = self.line()?;
                let size = line.split(';').next().unwrap_or_default();
                u64::from_str_radix(size, 16).map_err(|_| bad(format!("no size of a chunk: {line:?}")))?
            }
        };
        if size > LONGEST {
            return Err(bad(format!("a body of {size} bytes")));
        }
        let read = (&mut self.reader).take(size).read_to_end(&mut self.pending)?;
        if (read as u64) < size {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if self.framing == Framing::Chunked {
            self.line()?;
            if size == 0 {
                self.framing = Framing::Over;
            }
        }
        Ok(size > 0)
    }

    /// The rest of the body.
    pub(crate) fn body(&mut self) -> io::Result<String> {
        while self.piece()? {}
        Ok(String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned())
    }

    /// The next block of a stream of events; `None` at its proper end.
    pub(crate) fn event(&mut self) -> io::Result<Option<Event>> {
        loop {
            let text = String::from_utf8_lossy(&self.pending).replace("\r\n", "\n");
            if let Some((block, rest)) = text.split_once("\n\n") {
                let lines = block.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim_start);
                let data: Vec<&str> = lines.collect();
                let message = serde_json::from_str(&data.join("\n"));
                self.pending = rest.as_bytes().to_vec();
                return Ok(Some(message.map_or(Event::Quiet, Event::Message)));
            }
            if !self.piece()? {
                return Ok(None);
            }
        }
    }

    /// The next message of a stream of events.
    pub(crate) fn message(&mut self) -> io::Result<Option<Value>> {
        loop {
            match self.event()? {
                Some(Event::Message(message)) => return Ok(Some(message)),
                Some(Event::Quiet) => {}
                None => return Ok(None),
            }
        }
    }

    /// Sends a request, and reads the whole answer.
    pub(crate) fn exchange(address: &str, text: &str) -> io::Result<Answer> {
        let mut peer = Self::connect(address)?;
        peer.send(text)?;
        let head = peer.head()?;
        Ok(Answer { head, body: peer.body()? })
    }
}

fn bad(what: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

/// A request of revision 2026-07-28, which asks for progress.
pub(crate) fn request(id: impl Into<Value>, method: &str, mut params: Value) -> Value {
    let id = id.into();
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "xtask", "version": "0"},
        "progressToken": id,
    });
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

/// A tool's call.
pub(crate) fn call(id: impl Into<Value>, tool: &str, arguments: Value) -> Value {
    request(id, "tools/call", json!({"name": tool, "arguments": arguments}))
}

/// The headers that a message travels with.
pub(crate) fn headers(message: &Value) -> Vec<(String, String)> {
    let mut headers = vec![
        ("Content-Type".to_string(), "application/json".to_string()),
        ("Accept".to_string(), "application/json, text/event-stream".to_string()),
        ("MCP-Protocol-Version".to_string(), "2026-07-28".to_string()),
    ];
    if let Some(method) = message["method"].as_str() {
        headers.push(("Mcp-Method".to_string(), method.to_string()));
    }
    if let Some(name) = ["name", "uri"].iter().find_map(|member| message["params"][member].as_str()) {
        headers.push(("Mcp-Name".to_string(), name.to_string()));
    }
    headers
}

/// The text of a request with any method, headers and body.
pub(crate) fn text(verb: &str, host: &str, headers: &[(String, String)], body: &str) -> String {
    let lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("{verb} /mcp HTTP/1.1\r\nHost: {host}\r\n{lines}Content-Length: {}\r\n\r\n{body}", body.len())
}

/// The text of a POST of this message.
pub(crate) fn post(host: &str, message: &Value) -> String {
    text("POST", host, &headers(message), &message.to_string())
}

#[cfg(test)]
mod tests {
    use super::{Event, Peer, call, post};
    use serde_json::json;
    use std::io::{ErrorKind, Write as _};
    use std::net::TcpListener;

    fn answered(with: &'static str) -> Peer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = std::thread::spawn(move || listener.accept().unwrap().0.write_all(with.as_bytes()).unwrap());
        let peer = Peer::connect(&address).unwrap();
        server.join().unwrap();
        peer
    }

    #[test]
    fn a_body_has_one_of_three_ends() {
        for with in [
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcdef",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x\r\nc\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\nabc",
        ] {
            let mut peer = answered(with);
            assert_eq!(peer.head().unwrap().status, 200);
            assert_eq!(peer.body().unwrap(), "abc", "{with}");
        }
    }

    #[test]
    fn a_body_that_is_cut_off_is_told() {
        for with in [
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n",
        ] {
            let mut peer = answered(with);
            peer.head().unwrap();
            assert_eq!(peer.body().unwrap_err().kind(), ErrorKind::UnexpectedEof, "{with}");
        }
    }

    #[test]
    fn events_come_one_by_one() {
        let mut peer = answered(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: quiet\n\ndata: {\"a\":1}\r\n\r\ndata: 2\n\n",
        );
        assert!(peer.head().unwrap().is_stream());
        assert_eq!(peer.event().unwrap(), Some(Event::Quiet));
        assert_eq!(peer.message().unwrap(), Some(json!({"a": 1})));
        assert_eq!(peer.event().unwrap(), Some(Event::Message(json!(2))));
        assert_eq!(peer.event().unwrap(), None);
    }

    #[test]
    fn a_post_carries_the_headers_of_its_message() {
        let text = post("h", &call(1, "echo", json!({})));
        assert!(text.starts_with("POST /mcp HTTP/1.1\r\nHost: h\r\n"));
        assert!(text.contains("\r\nMcp-Method: tools/call\r\nMcp-Name: echo\r\n"));
    }
}
