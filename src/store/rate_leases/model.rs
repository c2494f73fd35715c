//! A model of the ledger in Redis, which tests compare with the script and simulate fleets with.

use std::collections::BTreeMap;
use std::time::Duration;

use super::ledger::{LeaseAsk, LeaseGrant};

/// From this limit on charges are grouped, 32 groups per window. Smaller limits are counted exactly.
const GROUPED_LIMIT: u64 = 16;
const GROUPS: u64 = 32;

/// The ledger of one key. All times are microseconds of the server's clock.
#[derive(Debug, Default, Clone)]
pub(super) struct ModelLedger {
    last: u64,
    /// Charges beside all shares, by the time at which they stop counting.
    charges: BTreeMap<u64, u64>,
    records: BTreeMap<String, ModelRecord>,
}

#[derive(Debug, Default, Clone)]
struct ModelRecord {
    sequence: u64,
    valid_until: u64,
    counts_until: u64,
    share: u64,
    need: u64,
    /// Counts, and until when.
    admitted: Vec<(u64, u64)>,
}

impl ModelRecord {
    /// What counts of this gateway.
    fn counted(&self, now: u64) -> u64 {
        let share = if self.counts_until > now { self.share } else { 0 };
        share.max(self.admitted(now))
    }

    fn admitted(&self, now: u64) -> u64 {
        self.admitted.iter().filter(|(_, end)| *end > now).map(|(count, _)| count).sum()
    }

    fn is_alive(&self, now: u64) -> bool {
        self.valid_until > now && self.need > 0
    }
}

pub(super) fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl ModelLedger {
    pub(super) fn ask(&mut self, ask: &LeaseAsk, now: u64) -> LeaseGrant {
        let now = now.max(self.last);
        self.last = now;
        let (limit, per) = (u64::from(ask.window.limit), microseconds(ask.window.per));
        self.charges.retain(|end, _| *end > now);
        self.records.retain(|_, record| record.counted(now) > 0 || record.is_alive(now));
        if self.records.get(&ask.record).is_some_and(|record| record.sequence >= ask.sequence) {
            return LeaseGrant { share: 0, charged: 0, entry: 0, retry_after: ask.window.per, gateways: 0, at: now };
        }
        self.records.remove(&ask.record);
        let charges: u64 = self.charges.values().sum();
        let others: u64 = self.records.values().map(|record| record.counted(now)).sum();
        let mut needs: Vec<u64> =
            self.records.values().filter(|record| record.is_alive(now)).map(|record| record.need).collect();
        let room = limit.saturating_sub(charges);
        let capacity = room.saturating_sub(others);
        let (need, want, held) = (u64::from(ask.need), u64::from(ask.want), u64::from(ask.held));
        if need > 0 {
            needs.push(need);
        }
        let gateways = needs.len() as u64;
        let share = want.min(fair_share(room, need, &mut needs)).min(capacity);
        let valid_until = now + microseconds(ask.validity);
        let record = ModelRecord {
            sequence: ask.sequence,
            valid_until,
            counts_until: valid_until + per,
            share: share.max(held),
            need,
            admitted: ask
                .admitted
                .iter()
                .map(|&(count, left)| (u64::from(count), now + microseconds(left) + 2))
                .collect(),
        };
        let free = capacity.saturating_sub(record.counted(now));
        let charged = free.min(u64::from(ask.charge));
        let mut entry = 0;
        if charged > 0 {
            entry = now + per;
            if limit >= GROUPED_LIMIT {
                let group = (per / GROUPS).max(1);
                entry = entry.div_ceil(group) * group;
            }
            *self.charges.entry(entry).or_default() += charged;
        }
        if record.counted(now) > 0 || record.is_alive(now) {
            self.records.insert(ask.record.clone(), record);
        }
        let retry_after = self.retry_after(limit, per, now);
        LeaseGrant {
            share: u32::try_from(share).unwrap_or(u32::MAX),
            charged: u32::try_from(charged).unwrap_or(u32::MAX),
            entry,
            retry_after: Duration::from_micros(retry_after),
            gateways: u32::try_from(gateways).unwrap_or(u32::MAX),
            at: now,
        }
    }

    pub(super) fn take_back(&mut self, entry: u64) {
        if let Some(count) = self.charges.get_mut(&entry) {
            *count -= 1;
            if *count == 0 {
                self.charges.remove(&entry);
            }
        }
    }

    /// When one more request fits: once enough of what counts has ended. A share ends a window after it is not renewed.
    fn retry_after(&self, limit: u64, per: u64, now: u64) -> u64 {
        let mut ends: Vec<(u64, u64)> = self.charges.iter().map(|(&end, &count)| (end, count)).collect();
        for record in self.records.values() {
            let share = if record.counts_until > now { record.share } else { 0 };
            if share > 0 {
                ends.push((record.counts_until.min(now + per), share));
            }
            let mut excess = record.admitted(now).saturating_sub(share);
            for &(count, end) in record.admitted.iter().filter(|(_, end)| *end > now) {
                ends.push((end, count.min(excess)));
                excess -= count.min(excess);
            }
        }
        ends.sort_unstable();
        let mut total: u64 = ends.iter().map(|(_, count)| count).sum();
        for (end, count) in ends {
            if total < limit {
                break;
            }
            total -= count;
            if total < limit {
                return end.saturating_sub(now).min(per);
            }
        }
        if total < limit { 0 } else { per }
    }
}

/// How much one gateway may hold. While all needs can be met, its need and a part of what is left, so that some remains for
/// a gateway that is new to the key. Otherwise nobody gets more than an equal part, but for what others do not need.
fn fair_share(room: u64, need: u64, needs: &mut [u64]) -> u64 {
    let gateways = needs.len() as u64;
    let total: u64 = needs.iter().sum();
    if total <= room {
        return need + (room - total) / (gateways + 1);
    }
    needs.sort_unstable();
    let (mut left, mut sharing) = (room, gateways);
    for &need in needs.iter() {
        if need > left / sharing {
            break;
        }
        left -= need;
        sharing -= 1;
    }
    (left / sharing.max(1)).max(1)
}
