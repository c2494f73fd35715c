//! Followers of finished requests, each with a filter and a bounded queue.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use tokio::sync::mpsc::{self, Receiver, Sender};

use super::FollowedRequest;
use crate::domain::finished_request::{FinishedRequest, FollowEvent, FollowFilter, FollowedOutcomes};

/// How many requests wait for a follower that reads slowly; later ones are counted and not shown.
const QUEUE: usize = 1024;

/// The most followers at a time.
const MOST_FOLLOWERS: usize = 16;

/// No further follower is possible.
#[derive(Debug, thiserror::Error)]
#[error("{MOST_FOLLOWERS} followers are connected already")]
pub struct TooManyFollowers;

/// Everyone who follows requests.
#[derive(Default)]
pub struct Followers {
    /// Read for every request.
    count: AtomicUsize,
    queues: ArcSwap<Vec<Arc<FollowerQueue>>>,
    /// Held while followers come and go.
    changing: Mutex<()>,
}

struct FollowerQueue {
    filter: FollowFilter,
    sender: Sender<Arc<FinishedRequest<'static>>>,
    lost: AtomicU64,
}

impl FollowerQueue {
    fn wants(&self, request: FollowedRequest<'_>) -> bool {
        let FollowFilter { outcomes, employee_id, rule } = &self.filter;
        let is_named = |wanted: &Option<String>, name: Option<&str>| wanted.is_none() || wanted.as_deref() == name;
        (*outcomes == FollowedOutcomes::All || request.is_unusual)
            && is_named(employee_id, request.employee_id)
            && is_named(rule, request.rule)
    }

    /// Never waits: what does not fit is counted.
    fn send(&self, request: Arc<FinishedRequest<'static>>) {
        if self.sender.try_send(request).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Followers {
    /// Whether anyone follows.
    pub fn is_any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Adds a follower, who is removed when it is dropped.
    pub fn add(self: &Arc<Self>, filter: FollowFilter) -> Result<RequestFollower, TooManyFollowers> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let queue = Arc::new(FollowerQueue { filter, sender, lost: AtomicU64::new(0) });
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut queues = Vec::clone(&self.queues.load());
        if queues.len() >= MOST_FOLLOWERS {
            return Err(TooManyFollowers);
        }
        queues.push(queue.clone());
        self.replace(queues);
        Ok(RequestFollower { followers: self.clone(), queue, receiver })
    }

    fn remove(&self, queue: &Arc<FollowerQueue>) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let queues = self.queues.load().iter().filter(|other| !Arc::ptr_eq(other, queue)).cloned().collect();
        self.replace(queues);
    }

    fn replace(&self, queues: Vec<Arc<FollowerQueue>>) {
        let count = queues.len();
        self.queues.store(Arc::new(queues));
        self.count.store(count, Ordering::Relaxed);
    }

    /// Builds the record of a request only if a follower wants it.
    #[cold]
    pub(super) fn publish(
        &self,
        selected_by: FollowedRequest<'_>,
        request: impl FnOnce() -> Arc<FinishedRequest<'static>>,
    ) {
        let queues = self.queues.load();
        let mut wanting = queues.iter().filter(|queue| queue.wants(selected_by));
        let Some(first) = wanting.next() else { return };
        let request = request();
        for queue in wanting {
            queue.send(request.clone());
        }
        first.send(request);
    }
}

/// One who follows requests.
pub struct RequestFollower {
    followers: Arc<Followers>,
    queue: Arc<FollowerQueue>,
    receiver: Receiver<Arc<FinishedRequest<'static>>>,
}

impl RequestFollower {
    /// Waits for the next request, or says how many were lost since the last call. What was queued before the loss comes first.
    pub async fn next(&mut self) -> FollowEvent {
        match self.receiver.try_recv() {
            Ok(request) => return FollowEvent::Request(Box::new(Arc::unwrap_or_clone(request))),
            Err(_) => match self.queue.lost.swap(0, Ordering::Relaxed) {
                0 => {}
                lost => return FollowEvent::Lost(lost),
            },
        }
        match self.receiver.recv().await {
            Some(request) => FollowEvent::Request(Box::new(Arc::unwrap_or_clone(request))),
            // The queue, which this follower holds, has a sender.
            None => std::future::pending().await,
        }
    }
}

impl Drop for RequestFollower {
    fn drop(&mut self) {
        self.followers.remove(&self.queue);
    }
}
