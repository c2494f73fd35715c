//! Series that appear on the page when they are first used: an idle gateway would otherwise list thousands of zeros.

use std::ops::Deref;
use std::sync::OnceLock;

use prometheus::core::{MetricVec, MetricVecBuilder};
use prometheus::{HistogramVec, IntCounterVec, IntGaugeVec};

/// A metric with labels.
pub trait Family: Clone {
    /// A series of it.
    type Member;

    /// The series with these label values, which is created if it does not exist. Takes a lock.
    fn member(&self, labels: &[&str]) -> Self::Member;
}

impl<B: MetricVecBuilder> Family for MetricVec<B> {
    type Member = B::M;

    fn member(&self, labels: &[&str]) -> B::M {
        self.with_label_values(labels)
    }
}

/// A series that is created when it is first used. From then on, using it costs the load of a pointer more than using the
/// metric itself.
#[derive(Debug)]
pub struct Series<F: Family> {
    family: F,
    labels: Box<[Box<str>]>,
    member: OnceLock<F::Member>,
}

/// A counter that is created when it is first used.
pub type CounterSeries = Series<IntCounterVec>;

/// A gauge that is created when it is first used.
pub type GaugeSeries = Series<IntGaugeVec>;

/// A histogram that is created when it is first used.
pub type HistogramSeries = Series<HistogramVec>;

impl<F: Family> Series<F> {
    pub(super) fn new(family: &F, labels: &[&str]) -> Self {
        Self {
            family: family.clone(),
            labels: labels.iter().map(|label| (*label).into()).collect(),
            member: OnceLock::new(),
        }
    }
}

impl<F: Family> Deref for Series<F> {
    type Target = F::Member;

    fn deref(&self) -> &F::Member {
        self.member.get_or_init(|| {
            let labels: Vec<&str> = self.labels.iter().map(AsRef::as_ref).collect();
            self.family.member(&labels)
        })
    }
}
