//! The hand-over of `deskgate serve --upgrade`: a new process takes the listening sockets over from the running one, through
//! its control socket, so that no connection is refused.
//!
//! If all state is in servers, both processes run beside each other: the new one starts and accepts, then the old one drains.
//! Databases in the data directory belong to one process at a time: the new one checks its files and asks for them, the old one
//! drains, closes them and passes the data lock on, and the new one opens them and accepts. Meanwhile connections wait in the
//! kernel's backlog. The old process exits only when the new one accepts; if that one ends before, it opens everything again.
//!
//! | new process | old process |
//! |---|---|
//! | `"hand_over"` | an [`Offer`] with the sockets, and with the lock unless it needs its databases |
//! | binds the addresses that were not offered | |
//! | `release`, if either needs the data directory | drains, then `released` with the lock |
//! | `ready` | drains if it has not, and exits |
//! | `failed: REASON` instead of one of these, and ends | goes on |

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

use super::descriptor_passing::{DescriptorChannel, ReceivedLine};
use super::inherited::{Inherited, ListeningSockets};
use super::{DataLock, StartError, control_client};
use crate::config::Config;

/// The request of a new process, in the place of a command.
pub(super) const REQUEST: &str = "\"hand_over\"";

const RELEASE: &str = "release";
const RELEASED: &str = "released";
const READY: &str = "ready";
const FAILED: &str = "failed: ";

/// The most characters of a reason that are passed on.
const LONGEST_REASON: usize = 2048;

/// How long the running gateway may take to answer the request, which needs nothing but its runtime.
const OFFER_TIMEOUT: Duration = Duration::from_secs(10);

/// What the running gateway passes on. The descriptors follow in the order of `sockets`.
#[derive(Serialize, Deserialize)]
struct Offer {
    pid: u32,
    /// Whether it has databases or keys in its data directory, which it must close first.
    needs_data_dir: bool,
    /// The setting and the address there of each socket.
    sockets: Vec<(String, SocketAddr)>,
}

/// What a gateway hands over to its successor.
#[derive(Clone)]
pub(super) struct HandOver {
    /// `None` once the gateway stops: nothing may keep the sockets open then.
    parts: Arc<ArcSwapOption<HandOverParts>>,
    /// One successor at a time.
    turn: Arc<Semaphore>,
    successors: mpsc::Sender<Successor>,
}

struct HandOverParts {
    sockets: ListeningSockets,
    lock: DataLock,
    needs_data_dir: bool,
}

/// The process that replaces this one.
pub struct Successor {
    channel: DescriptorChannel,
    /// What it asks for.
    pub step: HandOverStep,
    _turn: tokio::sync::OwnedSemaphorePermit,
}

/// What a successor asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandOverStep {
    /// The data directory: this process must close its databases.
    Release,
    /// Nothing more: it accepts requests.
    Exit,
}

impl HandOver {
    /// The successors arrive in the channel that is returned.
    pub(super) fn new(config: &Config, sockets: ListeningSockets, lock: DataLock) -> (Self, mpsc::Receiver<Successor>) {
        let (successors, receiver) = mpsc::channel(1);
        let parts = HandOverParts { sockets, lock, needs_data_dir: config.uses_data_dir() };
        let parts = Arc::new(ArcSwapOption::from_pointee(parts));
        (Self { parts, turn: Arc::new(Semaphore::new(1)), successors }, receiver)
    }

    /// Answers a new process that asks for the sockets, until it is ready to replace this one or gives up.
    pub(super) async fn offer(&self, stream: UnixStream) -> io::Result<()> {
        let channel = DescriptorChannel(stream);
        let (Ok(turn), Some(parts)) = (self.turn.clone().try_acquire_owned(), self.parts.load_full()) else {
            return channel.send("it is stopping or being replaced already", &[]).await;
        };
        parts.send(&channel).await?;
        drop(parts);
        let line = channel.receive().await?.map(|line| line.text);
        let step = match line.as_deref() {
            Some(RELEASE) => HandOverStep::Release,
            Some(READY) => HandOverStep::Exit,
            line => {
                let reason = failure(line);
                tracing::warn!(%reason, "the process that was to replace this one has given up; nothing has changed");
                return Ok(());
            }
        };
        // Fails only when this process stops anyway.
        let _ = self.successors.send(Successor { channel, step, _turn: turn }).await;
        Ok(())
    }

    /// Ends all hand-overs and returns the sockets and the lock. Dropping them closes the sockets, once the listeners have
    /// stopped.
    pub(super) fn close(&self) -> io::Result<Inherited> {
        self.parts.swap(None).map_or_else(|| Ok(Inherited::default()), |parts| parts.duplicate())
    }
}

impl HandOverParts {
    async fn send(&self, channel: &DescriptorChannel) -> io::Result<()> {
        let Self { sockets, lock, needs_data_dir } = self;
        let offer = Offer { pid: std::process::id(), needs_data_dir: *needs_data_dir, sockets: sockets.names() };
        let mut descriptors = sockets.descriptors();
        if !needs_data_dir {
            descriptors.push(lock.descriptor());
        }
        channel.send(&serde_json::to_string(&offer)?, &descriptors).await
    }

    /// For a gateway of this process.
    fn duplicate(&self) -> io::Result<Inherited> {
        let mut inherited = self.sockets.duplicate()?;
        inherited.lock = Some(self.lock.duplicate()?);
        Ok(inherited)
    }
}

impl Successor {
    /// Passes the data directory on and waits until the successor accepts requests. An error says why it does not. It has then
    /// ended, and this process must go on.
    pub(super) async fn replace(self, kept: &Inherited) -> io::Result<()> {
        let lock = kept.lock.as_ref().map(DataLock::descriptor);
        self.channel.send(RELEASED, lock.as_slice()).await?;
        let line = self.channel.receive().await?.map(|line| line.text);
        if line.as_deref() == Some(READY) {
            return Ok(());
        }
        // Until it has ended, it may have the databases open.
        while self.channel.receive().await?.is_some() {}
        Err(failure(line.as_deref()))
    }
}

/// Why a successor does not replace this process, by its last line.
fn failure(line: Option<&str>) -> io::Error {
    match line.and_then(|line| line.strip_prefix(FAILED)) {
        Some(reason) => io::Error::other(reason.to_owned()),
        None => io::Error::new(io::ErrorKind::UnexpectedEof, "it ended without a reason"),
    }
}

/// The running gateway that this process replaces.
pub struct Predecessor {
    channel: DescriptorChannel,
    pid: u32,
    needs_data_dir: bool,
}

impl Predecessor {
    /// Asks the gateway that runs on the data directory for its sockets; `None` if none runs.
    pub async fn find(config: &Config, inherited: &mut Inherited) -> Result<Option<Self>, StartError> {
        let Some(stream) = control_client::connect(&config.server.data_dir).await.map_err(failed)? else {
            return Ok(None);
        };
        let channel = DescriptorChannel(stream);
        let asked = async {
            channel.send(REQUEST, &[]).await?;
            channel.receive().await
        };
        let line = timeout(OFFER_TIMEOUT, asked).await.map_err(|_| failed("it does not respond"))?.map_err(failed)?;
        let line = line.ok_or_else(|| failed("it has closed the connection"))?;
        let (offer, descriptors) = read_offer(line)?;
        let mut descriptors = descriptors.into_iter();
        for ((key, address), socket) in offer.sockets.into_iter().zip(descriptors.by_ref()) {
            inherited.add(Some(key), Some(address), socket).map_err(failed)?;
        }
        inherited.lock = descriptors.next().map(DataLock::from);
        tracing::info!(pid = offer.pid, "taking over from the running gateway");
        Ok(Some(Self { channel, pid: offer.pid, needs_data_dir: offer.needs_data_dir }))
    }

    /// Waits until the data directory may be used, if one of the two processes needs it alone. A predecessor that ends
    /// meanwhile leaves it as a crash would.
    pub async fn release(&self, config: &Config, inherited: &mut Inherited) -> Result<(), StartError> {
        if !self.needs_data_dir && !config.uses_data_dir() {
            return Ok(());
        }
        self.channel.send(RELEASE, &[]).await.map_err(failed)?;
        let released = self.channel.receive().await.map_err(failed)?;
        match released {
            Some(ReceivedLine { text, descriptors }) if text == RELEASED => {
                inherited.lock = descriptors.into_iter().next().map(DataLock::from);
            }
            Some(line) => return Err(failed(line.text)),
            None => {
                tracing::warn!(pid = self.pid, "the gateway to be replaced has ended");
                inherited.lock = None;
            }
        }
        Ok(())
    }

    /// Tells the predecessor why this process does not replace it. This process must end then.
    pub async fn give_up(&self, error: &StartError) {
        let reason: String = error.to_string().replace('\n', "; ").chars().take(LONGEST_REASON).collect();
        // Fails only if it has ended already.
        let _ = self.channel.send(&format!("{FAILED}{reason}"), &[]).await;
    }

    /// Tells the predecessor that this process accepts requests, so that it exits.
    pub async fn dismiss(self) {
        // Fails only if it has ended already.
        let _ = self.channel.send(READY, &[]).await;
    }
}

fn read_offer(line: ReceivedLine) -> Result<(Offer, Vec<OwnedFd>), StartError> {
    match serde_json::from_str::<Offer>(&line.text) {
        Ok(offer) if offer.sockets.len() <= line.descriptors.len() => Ok((offer, line.descriptors)),
        _ if line.text.starts_with('{') => Err(failed("its version does not hand over; restart it instead")),
        _ => Err(failed(line.text)),
    }
}

fn failed(why: impl ToString) -> StartError {
    StartError::HandOver(why.to_string())
}
