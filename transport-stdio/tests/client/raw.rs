//! The server's end of a Unix socket, in the hands of the test: it says what no server of ours would.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use serde_json::Value;
use steady_stdio::client::{Client, ClientConfig};

pub(crate) struct Raw {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
}

impl Raw {
    /// A client and its server's end. The client does not ask for `server/discover`, unless `config` says so.
    pub(crate) async fn attach(config: ClientConfig, max_answer: usize) -> (Client, Self) {
        let (raw, stream) = Self::pair();
        let (reader, writer) = stream.into_split();
        let client = Client::attach(reader, writer, config, max_answer).await.expect("nothing is asked");
        (client, raw)
    }

    pub(crate) fn pair() -> (Self, tokio::net::UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        theirs.set_nonblocking(true).expect("a mode");
        ours.set_read_timeout(Some(super::GUARD)).expect("a guard");
        let reader = BufReader::new(ours.try_clone().expect("a second handle"));
        (Self { reader, writer: ours }, tokio::net::UnixStream::from_std(theirs).expect("a stream"))
    }

    /// The next message of the client.
    pub(crate) fn heard(&mut self) -> Value {
        let mut line = String::new();
        self.reader.read_line(&mut line).expect("the client speaks");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// The next request; its id.
    pub(crate) fn request(&mut self) -> i64 {
        let message = self.heard();
        assert_eq!(message["method"], "tools/call", "{message}");
        assert_eq!(message["params"]["_meta"]["progressToken"], message["id"], "{message}");
        message["id"].as_i64().expect("an integer")
    }

    pub(crate) fn say(&mut self, line: &str) {
        self.say_bytes(format!("{line}\n").as_bytes());
    }

    pub(crate) fn say_bytes(&mut self, bytes: &[u8]) {
        self.writer.write_all(bytes).expect("the client reads");
    }

    pub(crate) fn answer(&mut self, id: i64, text: &str) {
        self.say(&answer(id, text));
    }

    pub(crate) fn progress(&mut self, token: i64, value: f64) {
        self.say(&format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{value},"total":100,"message":"step {value}"}}}}"#
        ));
    }

    /// A call that is answered: what was said before has been read.
    pub(crate) async fn round_trip(&mut self, client: &Client) {
        let call = client.call(super::tool("echo", "{}"));
        let id = self.request();
        self.answer(id, "pong");
        assert_eq!(call.tool_result().await.expect("an answer").text(), "pong");
    }
}

pub(crate) fn answer(id: i64, text: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"complete","content":[{{"type":"text","text":"{text}"}}]}}}}"#
    )
}
