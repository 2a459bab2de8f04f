//! A proxy on real sockets that cuts the connection of a listen, and lets nothing new through until it is opened again.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};

/// What the answer to a listen begins with.
const ACKNOWLEDGED: &[u8] = b"notifications/subscriptions/acknowledged";

pub(crate) struct Proxy {
    pub(crate) address: String,
    server: Arc<Mutex<String>>,
    open: watch::Sender<bool>,
    listens: mpsc::UnboundedReceiver<Listen>,
}

/// A connection on which a listen was acknowledged.
pub(crate) struct Listen {
    cut: oneshot::Sender<()>,
    gone: oneshot::Receiver<()>,
}

impl Proxy {
    pub(crate) async fn start(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let server = Arc::new(Mutex::new(server));
        let (open, is_open) = watch::channel(true);
        let (told, listens) = mpsc::unbounded_channel();
        let to = Arc::clone(&server);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = to.lock().expect("no panic").clone();
                let (is_open, told) = (is_open.clone(), told.clone());
                // A server that is gone refuses: so does the proxy, by hanging up.
                tokio::spawn(async move {
                    if let Ok(server) = TcpStream::connect(server).await {
                        pass(client, server, is_open, told).await;
                    }
                });
            }
        });
        Self { address, server, open, listens }
    }

    /// The next listen that the server has acknowledged.
    pub(crate) async fn listen(&mut self) -> Listen {
        self.listens.recv().await.expect("the proxy runs")
    }

    /// Where the server is from now on.
    pub(crate) fn moved(&self, server: String) {
        *self.server.lock().expect("no panic") = server;
    }

    /// Cuts the listen, and lets requests through again once `meanwhile` is over.
    pub(crate) async fn cut_while(&self, listen: Listen, meanwhile: impl Future<Output = ()>) {
        self.open.send_replace(false);
        listen.cut.send(()).expect("it is open");
        let _its_sockets_are_closed = listen.gone.await;
        meanwhile.await;
        self.open.send_replace(true);
    }
}

async fn pass(
    client: TcpStream,
    server: TcpStream,
    is_open: watch::Receiver<bool>,
    told: mpsc::UnboundedSender<Listen>,
) {
    // Dropped after the sockets.
    let (_gone, gone) = oneshot::channel();
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    tokio::select! {
        () = up(from_client, to_server, is_open) => {}
        () = down(from_server, to_client, gone, told) => {}
    }
}

async fn up(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut is_open: watch::Receiver<bool>) {
    let mut bytes = vec![0; 1 << 14];
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        let open = is_open.wait_for(|open| *open).await.is_ok();
        if !open || to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}

async fn down(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    gone: oneshot::Receiver<()>,
    told: mpsc::UnboundedSender<Listen>,
) {
    let (cut, mut is_cut) = oneshot::channel();
    let mut unseen = Some(Listen { cut, gone });
    let (mut bytes, mut seen) = (vec![0; 1 << 14], Vec::new());
    loop {
        let read = tokio::select! {
            read = from.read(&mut bytes) => read,
            // The sender is kept here as long as no listen was seen.
            _cut = &mut is_cut => return,
        };
        let Ok(read @ 1..) = read else { return };
        if to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
        if unseen.is_some() {
            seen.extend_from_slice(&bytes[..read]);
        }
        if seen.windows(ACKNOWLEDGED.len()).any(|text| text == ACKNOWLEDGED) {
            seen.clear();
            let _the_test_is_over = unseen.take().map(|listen| told.send(listen));
        }
    }
}
