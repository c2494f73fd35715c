//! How many requests of one key arrive, refused ones included.

/// The rate of arrivals, measured over an interval. All times are nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Demand {
    /// Requests per nanosecond in earlier intervals.
    rate: f64,
    /// Requests since `since`.
    requests: u32,
    since: u64,
    last: u64,
}

impl Demand {
    pub(super) fn new(now: u64) -> Self {
        Self { rate: 0.0, requests: 0, since: now, last: now }
    }

    /// Counts a request.
    pub(super) fn note(&mut self, now: u64) {
        self.requests = self.requests.saturating_add(1);
        self.last = self.last.max(now);
    }

    /// How many requests are to be expected in `span`, by what arrived in the last `interval` or two. Rising traffic is
    /// seen at once; falling traffic halves the expectation with each interval.
    pub(super) fn expected(&mut self, now: u64, interval: u64, span: u64) -> f64 {
        let elapsed = now.saturating_sub(self.since);
        let current = f64::from(self.requests) / elapsed.max(interval) as f64;
        if elapsed < interval {
            return self.rate.max(current) * span as f64;
        }
        self.rate = if current > self.rate { current } else { f64::midpoint(self.rate, current) };
        (self.requests, self.since) = (0, now);
        self.rate * span as f64
    }

    /// Whether a whole interval was measured.
    pub(super) fn is_measured(&self) -> bool {
        self.rate > 0.0
    }

    /// Whether this is the only request so far, so that nothing is known of the others.
    pub(super) fn is_first(&self) -> bool {
        self.rate == 0.0 && self.requests <= 1
    }

    /// When the last request arrived.
    pub(super) fn last(&self) -> u64 {
        self.last
    }
}
