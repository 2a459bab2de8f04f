//! A small forward proxy: absolute form and tunnels, whatever the name, to one origin.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, copy};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

/// What it does with requests.
#[derive(Clone, Copy)]
pub(crate) enum Manner {
    Pass,
    /// This is the whole answer, and the end of the connection.
    Say(&'static str),
}

/// It serves until its runtime ends.
pub(crate) struct ForwardProxy {
    address: SocketAddr,
    asked: mpsc::UnboundedReceiver<Vec<String>>,
    cut: watch::Sender<u32>,
}

impl ForwardProxy {
    pub(crate) async fn start(origin: SocketAddr, manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let (asked_to, asked) = mpsc::unbounded_channel();
        let (cut, cuts) = watch::channel(0);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (asked_to, mut cuts) = (asked_to.clone(), cuts.clone());
                cuts.mark_unchanged();
                tokio::spawn(async move {
                    tokio::select! {
                        _ended = serve(stream, origin, manner, &asked_to) => {}
                        _cut = cuts.changed() => {}
                    }
                });
            }
        });
        Self { address, asked, cut }
    }

    /// Where it is, with these credentials and their `@`.
    pub(crate) fn url(&self, credentials: &str) -> String {
        format!("http://{credentials}{}", self.address)
    }

    /// The lines of the next request's head.
    pub(crate) async fn asked(&mut self) -> Vec<String> {
        self.asked.recv().await.expect("it serves")
    }

    pub(crate) fn is_quiet(&mut self) -> bool {
        self.asked.try_recv().is_err()
    }

    /// Drops all connections, as a proxy that dies.
    pub(crate) fn cut(&self) {
        self.cut.send_modify(|cuts| *cuts += 1);
    }
}

async fn serve(
    client: TcpStream,
    origin: SocketAddr,
    manner: Manner,
    asked: &mpsc::UnboundedSender<Vec<String>>,
) -> io::Result<()> {
    let (from_client, mut to_client) = client.into_split();
    let mut from_client = BufReader::new(from_client);
    let mut lines = head(&mut from_client).await?;
    let _test_is_over = asked.send(lines.clone());
    if let Manner::Say(answer) = manner {
        to_client.write_all(answer.as_bytes()).await?;
        return to_client.shutdown().await;
    }
    let (mut from_server, mut to_server) = TcpStream::connect(origin).await?.into_split();
    let is_tunnel = lines[0].starts_with("CONNECT ");
    if is_tunnel {
        to_client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
    }
    let requests = async {
        if is_tunnel {
            return copy(&mut from_client, &mut to_server).await.map(drop);
        }
        loop {
            pass(&lines, &mut from_client, &mut to_server).await?;
            lines = head(&mut from_client).await?;
            let _test_is_over = asked.send(lines.clone());
        }
    };
    // The end of either side is the end of both.
    tokio::select! {
        end = requests => end,
        end = copy(&mut from_server, &mut to_client) => end.map(drop),
    }
}

/// The lines of a request's head.
async fn head(client: &mut BufReader<OwnedReadHalf>) -> io::Result<Vec<String>> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if client.read_line(&mut line).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match line.trim_end() {
            "" => return Ok(lines),
            line => lines.push(line.to_owned()),
        }
    }
}

/// Passes one request on, without what was for the proxy.
async fn pass(lines: &[String], client: &mut BufReader<OwnedReadHalf>, server: &mut OwnedWriteHalf) -> io::Result<()> {
    let uri = lines[0].split(' ').nth(1).and_then(|uri| uri.strip_prefix("http://"));
    let (_, path) = uri.and_then(|uri| uri.split_once('/')).expect("an absolute form");
    let mut request = format!("POST /{path} HTTP/1.1\r\n");
    let mut length = 0;
    for line in &lines[1..] {
        let lower = line.to_ascii_lowercase();
        if let Some(size) = lower.strip_prefix("content-length: ") {
            length = size.parse().expect("a length");
        }
        if !lower.starts_with("proxy-") {
            request += &format!("{line}\r\n");
        }
    }
    let mut body = vec![0; length];
    client.read_exact(&mut body).await?;
    server.write_all(format!("{request}\r\n").as_bytes()).await?;
    server.write_all(&body).await
}
