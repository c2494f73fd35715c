use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::*;

/// Longer than any task here takes.
const TIMEOUT: Duration = Duration::from_secs(5);

async fn failure_of(tasks: &TaskSet) -> String {
    tokio::time::timeout(TIMEOUT, tasks.failure()).await.expect("a failure").to_string()
}

#[tokio::test]
async fn a_task_that_panics_is_reported_with_its_name_and_message() {
    let tasks = TaskSet::default();
    tasks.spawn("sweep", std::future::pending());
    tasks.spawn("change feed", async { panic!("the feed is corrupt") });
    let failure = failure_of(&tasks).await;
    assert!(failure.contains("`change feed`") && failure.contains("the feed is corrupt"), "{failure}");
}

#[tokio::test]
async fn a_task_that_returns_before_shutdown_is_reported() {
    let tasks = TaskSet::default();
    tasks.spawn("sweep", std::future::pending());
    tasks.spawn("change feed", async {});
    assert_eq!(failure_of(&tasks).await, "background task `change feed` ended unexpectedly");
}

#[tokio::test]
async fn healthy_tasks_report_no_failure() {
    let tasks = TaskSet::default();
    tasks.spawn("sweep", std::future::pending());
    for _ in 0..10 {
        tokio::task::yield_now().await;
        assert!(futures::poll!(std::pin::pin!(tasks.failure())).is_pending());
    }
}

#[tokio::test]
async fn stop_cancels_tasks_and_waits_until_they_are_dropped() {
    struct SetOnDrop(Arc<AtomicBool>);
    impl Drop for SetOnDrop {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let (tasks, dropped) = (TaskSet::default(), Arc::new(AtomicBool::new(false)));
    let guard = SetOnDrop(dropped.clone());
    tasks.spawn("sweep", async move {
        let _guard = guard;
        std::future::pending::<()>().await;
    });
    tokio::time::timeout(TIMEOUT, tasks.stop()).await.expect("an end");
    assert!(dropped.load(Ordering::SeqCst));
}
