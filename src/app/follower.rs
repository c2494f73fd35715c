//! Follows the requests of the gateway that runs on a data directory, also when another process takes its place: after a
//! restart it connects again, and beside a gateway that drains it follows the one that has taken over.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::future::select_all;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep, timeout, timeout_at};

use super::control_client::{ControlError, FollowStream, SOCKET_FILE};
use crate::admin::CommandError;
use crate::domain::duration::HumanDuration;
use crate::domain::finished_request::{FollowEvent, FollowFilter};

/// The pause before the first attempt to connect again; it doubles with each attempt.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How often to look whether another process has taken over.
const SUCCESSOR_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// How long a process that has taken over may take to answer, while the other one's requests wait.
const SUCCESSOR_TIMEOUT: Duration = Duration::from_secs(1);

/// What a follower reports.
#[derive(Debug, PartialEq)]
pub enum FollowUpdate {
    /// An event of the gateway.
    Event(FollowEvent),
    /// The gateway has ended; the follower waits for it.
    Gone,
    /// A gateway runs again.
    Back {
        /// How long there was none.
        after: Duration,
    },
    /// Another process has taken over, and its requests are followed, too. The first one still drains.
    TakenOver,
}

/// Why requests cannot be followed, or no longer.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum FollowError {
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error(transparent)]
    Command(CommandError),
    #[error("the gateway has ended")]
    Ended,
    #[error("the gateway has ended and was not back within {0}")]
    NotBack(HumanDuration),
}

/// A control socket, distinguished from one that has replaced it. The number of a removed file may be used again, so its time
/// of change counts, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SocketFile {
    inode: u64,
    changed: (i64, i64),
}

impl SocketFile {
    /// The control socket in a data directory; `None` if there is none.
    fn of(data: &Path) -> Option<Self> {
        let found = std::fs::metadata(data.join(SOCKET_FILE)).ok()?;
        Some(Self { inode: found.ino(), changed: (found.ctime(), found.ctime_nsec()) })
    }
}

/// Reads finished requests from the gateway that runs on a data directory.
pub struct GatewayFollower {
    data: PathBuf,
    filter: FollowFilter,
    /// How long to wait for a gateway that has ended.
    wait: Duration,
    /// The running gateway, and beside it one that drains.
    streams: Vec<FollowStream>,
    /// The socket of the newest stream.
    socket: Option<SocketFile>,
    gone_since: Option<Instant>,
    successor_check: Interval,
}

impl GatewayFollower {
    /// Begins to follow the running gateway, which must run already.
    pub async fn start(data: &Path, filter: FollowFilter, wait: Duration) -> Result<Self, FollowError> {
        let mut successor_check = interval(SUCCESSOR_CHECK_INTERVAL);
        successor_check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (data, streams) = (data.to_owned(), Vec::new());
        let mut follower = Self { data, filter, wait, streams, socket: None, gone_since: None, successor_check };
        follower.attach().await?;
        Ok(follower)
    }

    /// Waits for the next update. After [`FollowUpdate::Gone`], the next one comes when a gateway is back, or is the error that
    /// none is.
    pub async fn next(&mut self) -> Result<FollowUpdate, FollowError> {
        if let Some(since) = self.gone_since {
            self.reattach(since).await?;
            self.gone_since = None;
            return Ok(FollowUpdate::Back { after: since.elapsed() });
        }
        loop {
            let arrival = select_all(self.streams.iter_mut().map(|stream| Box::pin(stream.next())));
            let arrived = tokio::select! {
                (event, index, _) = arrival => Some((event, index)),
                _ = self.successor_check.tick() => None,
            };
            match arrived {
                Some((Ok(Ok(event)), _)) => return Ok(FollowUpdate::Event(event)),
                Some((Ok(Err(refusal)), _)) => return Err(FollowError::Command(refusal)),
                Some((Err(error), index)) if error.is_end() => {
                    self.streams.swap_remove(index);
                    if self.streams.is_empty() {
                        if self.wait.is_zero() {
                            return Err(FollowError::Ended);
                        }
                        self.gone_since = Some(Instant::now());
                        return Ok(FollowUpdate::Gone);
                    }
                }
                Some((Err(error), _)) => return Err(error.into()),
                None if self.has_successor() => {
                    // One that does not answer yet is asked again at the next check. Its refusal is an error once it is alone.
                    if let Ok(Ok(())) = timeout(SUCCESSOR_TIMEOUT, self.attach()).await {
                        return Ok(FollowUpdate::TakenOver);
                    }
                }
                None => {}
            }
        }
    }

    /// Whether the control socket is no longer that of the newest stream.
    fn has_successor(&self) -> bool {
        let found = SocketFile::of(&self.data);
        found.is_some() && found != self.socket
    }

    /// Follows the gateway that the control socket leads to.
    async fn attach(&mut self) -> Result<(), FollowError> {
        let (mut stream, socket) = loop {
            let socket = SocketFile::of(&self.data);
            let stream = FollowStream::open(&self.data, self.filter.clone()).await?;
            // A socket that was replaced meanwhile would later be taken for that of another process.
            if SocketFile::of(&self.data) == socket {
                break (stream, socket);
            }
        };
        // The first event says only that others follow.
        stream.next().await?.map_err(FollowError::Command)?;
        self.streams.push(stream);
        self.socket = socket;
        Ok(())
    }

    /// Tries to follow a gateway again until one runs or the time is up.
    async fn reattach(&mut self, since: Instant) -> Result<(), FollowError> {
        let deadline = since + self.wait;
        let mut pause = FIRST_PAUSE;
        loop {
            sleep(pause.min(deadline.saturating_duration_since(Instant::now()))).await;
            match timeout_at(deadline, self.attach()).await {
                Ok(Err(FollowError::Control(error))) if error.is_end() && Instant::now() < deadline => {}
                Ok(Err(FollowError::Control(error))) if error.is_end() => break,
                Ok(attached) => return attached,
                Err(_) => break,
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        Err(FollowError::NotBack(self.wait.into()))
    }
}

#[cfg(test)]
mod tests;
