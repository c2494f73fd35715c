//! Reads a gateway's metrics and log.

use super::{Client, Gateway, eventually};

impl Gateway {
    /// The body of `/metrics`.
    pub async fn metrics(&self) -> String {
        Client::new(self.admin_address()).get("/metrics").await.expect_status(200).text()
    }

    /// The sum of the samples whose labels contain all of `labels` (`name="value"`), or 0.
    pub async fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let page = self.metrics().await;
        let samples = page.lines().filter(|line| !line.starts_with('#')).filter(|line| {
            let rest = line.strip_prefix(name).unwrap_or_default();
            (rest.starts_with('{') || rest.starts_with(' ')) && labels.iter().all(|label| rest.contains(label))
        });
        samples.map(|line| line.rsplit(' ').next().unwrap_or_default().parse::<f64>().expect("a number")).sum()
    }

    /// Waits until so many requests are being answered.
    pub async fn wait_for_requests_in_flight(&self, count: f64) {
        eventually(&format!("{count} requests in flight"), || async {
            (self.metric("deskgate_requests_in_flight", &[]).await == count).then_some(())
        })
        .await;
    }

    /// A metric after all requests so far: each is counted when its response has been sent.
    pub async fn settled_metric(&self, name: &str, labels: &[&str]) -> f64 {
        self.wait_for_requests_in_flight(0.0).await;
        self.metric(name, labels).await
    }

    /// The process's stderr so far.
    pub fn logs(&self) -> String {
        self.process.stderr.text()
    }

    /// Waits for a log line that contains all of `parts`.
    pub async fn wait_for_log(&self, parts: &[&str]) -> String {
        eventually(&format!("a log line with {parts:?}"), || async {
            self.logs().lines().find(|line| parts.iter().all(|part| line.contains(part))).map(str::to_owned)
        })
        .await
    }

    /// A line of `/proc/PID/status` in KiB: `VmRSS`, `VmHWM`, …
    pub fn memory_kib(&self, name: &str) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("a running gateway");
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or_else(|| panic!("no {name}"))
    }
}
