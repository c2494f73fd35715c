//! A TCP proxy between a test and a server that delays, cuts and half-opens connections.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What the proxy does with bytes from the server.
#[derive(Debug, Clone)]
pub enum Answers {
    /// Passes them on.
    Pass,
    /// Passes them on later.
    Delay(Duration),
    /// Swallows them, and keeps the connection: the other side looks alive and says nothing.
    Swallow,
    /// Sends these bytes instead, once, and swallows the rest.
    Replace(&'static [u8]),
    /// Sends these bytes first, once, and passes everything on: each answer looks like that to the question after it.
    Precede(&'static [u8]),
    /// Passes on the first half of each read and closes the connection.
    Truncate,
}

/// A proxy. It ends when it is dropped.
pub struct TcpProxy {
    /// Where it listens.
    pub port: u16,
    answers: watch::Sender<Answers>,
    /// The port of the server.
    target: watch::Sender<u16>,
    /// Ends the connections that exist now.
    cut: Arc<Mutex<watch::Sender<()>>>,
    listener: JoinHandle<()>,
}

impl Drop for TcpProxy {
    fn drop(&mut self) {
        self.listener.abort();
        self.cut();
    }
}

impl TcpProxy {
    /// Starts a proxy to a port of this machine.
    pub async fn start(to: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a listener");
        let port = listener.local_addr().expect("an address").port();
        let (answers, seen) = watch::channel(Answers::Pass);
        let (target, to) = watch::channel(to);
        let cut = Arc::new(Mutex::new(watch::channel(()).0));
        let cuts = cut.clone();
        let listener = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let cut = cuts.lock().unwrap_or_else(PoisonError::into_inner).subscribe();
                let to = SocketAddr::from(([127, 0, 0, 1], *to.borrow()));
                tokio::spawn(relay(client, to, seen.clone(), cut));
            }
        });
        Self { port, answers, target, cut, listener }
    }

    /// What happens to answers from now on.
    pub fn set(&self, answers: Answers) {
        self.answers.send_replace(answers);
    }

    /// Connects to another server from now on, and closes every connection.
    pub fn redirect(&self, to: u16) {
        self.redirect_new(to);
        self.cut();
    }

    /// Connects to another server from now on, and leaves open connections where they are.
    pub fn redirect_new(&self, to: u16) {
        self.target.send_replace(to);
    }

    /// Closes every connection.
    pub fn cut(&self) {
        // Dropping the sender ends all that wait for it.
        *self.cut.lock().unwrap_or_else(PoisonError::into_inner) = watch::channel(()).0;
    }
}

async fn relay(mut client: TcpStream, to: SocketAddr, answers: watch::Receiver<Answers>, mut cut: watch::Receiver<()>) {
    let Ok(mut server) = TcpStream::connect(to).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let requests = tokio::io::copy(&mut from_client, &mut to_server);
    let responses = async {
        let mut buffer = vec![0; 64 * 1024];
        let (mut replaced, mut preceded) = (false, false);
        loop {
            let Ok(length @ 1..) = from_server.read(&mut buffer).await else { return };
            let answer = answers.borrow().clone();
            let bytes = match answer {
                Answers::Pass => &buffer[..length],
                Answers::Delay(pause) => {
                    tokio::time::sleep(pause).await;
                    &buffer[..length]
                }
                Answers::Swallow => continue,
                Answers::Replace(_) if replaced => continue,
                Answers::Replace(bytes) => {
                    replaced = true;
                    bytes
                }
                Answers::Precede(bytes) => {
                    if !std::mem::replace(&mut preceded, true) && to_client.write_all(bytes).await.is_err() {
                        return;
                    }
                    &buffer[..length]
                }
                Answers::Truncate => {
                    let _ = to_client.write_all(&buffer[..length / 2]).await;
                    return;
                }
            };
            if to_client.write_all(bytes).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        _ = requests => {}
        () = responses => {}
        _ = cut.changed() => {}
    }
}
