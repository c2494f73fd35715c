//! Tracks the background tasks of the process by name. It only detects that a task died; the CLI decides what happens
//! to the process.

use std::collections::HashMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::task::{Id, JoinError, JoinSet};

#[derive(Debug, Default)]
struct Running {
    tasks: JoinSet<()>,
    names: HashMap<Id, &'static str>,
}

/// The background tasks of the process.
///
/// A task that dies is never ignored: [`TaskSet::failure`] reports it and the process exits with code 1. This
/// holds for all tasks, because each guards something that nothing else notices. Without the change feed, for
/// example, the gateway would go on accepting sessions that were revoked elsewhere.
#[derive(Debug, Default)]
pub(super) struct TaskSet {
    running: Mutex<Running>,
}

impl TaskSet {
    /// Starts a task that must run until shutdown.
    pub(super) fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let mut running = self.lock();
        let id = running.tasks.spawn(task).id();
        running.names.insert(id, name);
    }

    /// Resolves when a task has died. Pending as long as no task has died.
    pub(super) async fn failure(&self) -> TaskFailure {
        poll_fn(|context| self.lock().poll_failure(context)).await
    }

    /// Cancels all tasks and waits until they are gone, so that nothing writes to a store that is being closed.
    pub(super) async fn stop(self) {
        let mut tasks = self.running.into_inner().unwrap_or_else(PoisonError::into_inner).tasks;
        tasks.shutdown().await;
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running {
    fn poll_failure(&mut self, context: &mut Context<'_>) -> Poll<TaskFailure> {
        if let Poll::Ready(Some(ended)) = self.tasks.poll_join_next_with_id(context) {
            let id = ended.as_ref().map_or_else(JoinError::id, |(id, ())| *id);
            let name = self.names.remove(&id).unwrap_or("unnamed");
            return Poll::Ready(TaskFailure { name, cause: ended.err() });
        }
        // Tasks are only added before the first poll, so an empty set needs no waker: nothing can fail any more.
        Poll::Pending
    }
}

/// A background task that died.
#[derive(Debug)]
pub struct TaskFailure {
    name: &'static str,
    /// The panic; `None` when the task returned.
    cause: Option<JoinError>,
}

impl fmt::Display for TaskFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            // Tokio's text names the panic's message.
            Some(error) => write!(f, "background task `{}` died: {error}", self.name),
            None => write!(f, "background task `{}` ended unexpectedly", self.name),
        }
    }
}

#[cfg(test)]
mod tests;
