//! A simulated fleet: leases of several gateways on one model of the ledger, with clocks that differ, and messages that are
//! late or lost.

use std::time::Duration;

use crate::domain::rate::{Charged, Window};
use crate::store::rate_leases::lease::{ChargeTurn, LeasedCharge, RateLease, Review};
use crate::store::rate_leases::ledger::{LeaseAsk, LeaseGrant};
use crate::store::rate_leases::model::ModelLedger;

/// How long a gateway waits for an answer, in nanoseconds.
const TIMEOUT: u64 = 200_000_000;

/// What happens to a message to the ledger and its answer, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct MessageFate {
    /// How long the message takes; `None` if it is lost.
    pub(super) there: Option<u64>,
    /// How long the answer takes; `None` if it is lost.
    pub(super) back: Option<u64>,
}

impl MessageFate {
    pub(super) const FAST: Self = Self { there: Some(200_000), back: Some(200_000) };
}

/// A clock that runs faster or slower than the server's.
#[derive(Debug, Clone, Copy)]
pub(super) struct SkewedClock {
    pub(super) offset: u64,
    pub(super) millionths: i64,
}

impl SkewedClock {
    fn read(self, real: u64) -> u64 {
        let drift = i128::from(real) * i128::from(self.millionths) / 1_000_000;
        self.offset + u64::try_from(i128::from(real) + drift).unwrap_or(0)
    }
}

struct FleetMember {
    clock: SkewedClock,
    lease: RateLease,
    record: String,
    /// The ask that is not answered yet.
    asking: Option<Asking>,
    waiting: u32,
}

struct Asking {
    ask: LeaseAsk,
    sent: u64,
    deadline: u64,
}

/// A message on its way.
enum LedgerMessage {
    Ask { at: u64, member: usize, ask: LeaseAsk, back: Option<u64> },
    Answer { at: u64, member: usize, record: String, sequence: u64, grant: LeaseGrant },
}

impl LedgerMessage {
    fn at(&self) -> u64 {
        match self {
            Self::Ask { at, .. } | Self::Answer { at, .. } => *at,
        }
    }
}

/// A simulated fleet. Times are nanoseconds of the server's clock.
pub(super) struct Fleet {
    pub(super) window: Window,
    pub(super) now: u64,
    pub(super) network: MessageFate,
    /// When requests were admitted, and by whom.
    pub(super) admitted: Vec<(u64, usize)>,
    pub(super) refused: u64,
    pub(super) asks: u64,
    ledger: ModelLedger,
    members: Vec<FleetMember>,
    messages: Vec<LedgerMessage>,
    crashes: u64,
}

impl Fleet {
    pub(super) fn new(window: Window, clocks: &[SkewedClock]) -> Self {
        let member = |(number, &clock): (usize, &SkewedClock)| FleetMember {
            clock,
            lease: RateLease::new(window, clock.read(0)),
            record: format!("gateway {number}"),
            asking: None,
            waiting: 0,
        };
        Self {
            window,
            now: 0,
            network: MessageFate::FAST,
            admitted: Vec::new(),
            refused: 0,
            asks: 0,
            ledger: ModelLedger::default(),
            members: clocks.iter().enumerate().map(member).collect(),
            messages: Vec::new(),
            crashes: 0,
        }
    }

    /// Lets time pass: messages arrive, answers time out.
    pub(super) fn advance(&mut self, by: u64) {
        let end = self.now + by;
        loop {
            let message = (0..self.messages.len()).min_by_key(|&index| self.messages[index].at());
            let message_at = message.map_or(u64::MAX, |index| self.messages[index].at());
            let asking =
                |member: usize| self.members[member].asking.as_ref().map_or(u64::MAX, |asking| asking.deadline);
            let late = (0..self.members.len()).min_by_key(|&member| asking(member));
            let late_at = late.map_or(u64::MAX, asking);
            if message_at.min(late_at) > end {
                break;
            }
            self.now = self.now.max(message_at.min(late_at));
            match (message, late) {
                (Some(index), _) if message_at <= late_at => {
                    let message = self.messages.swap_remove(index);
                    self.deliver(message);
                }
                (_, Some(member)) => self.give_up(member),
                (Some(_), None) | (None, None) => break,
            }
        }
        self.now = end;
    }

    /// A request arrives. It is admitted, refused, or waits for the ledger.
    pub(super) fn request(&mut self, member: usize) {
        let now = self.local(member);
        let charged = self.members[member].lease.charge(self.window, now, ChargeTurn::First);
        self.count(member, charged);
    }

    /// A request arrives that another rate refuses right after it was admitted here.
    pub(super) fn refunded_request(&mut self, member: usize) {
        let (now, before) = (self.local(member), self.admitted.len());
        self.request(member);
        if self.admitted.len() > before {
            self.admitted.pop();
            self.members[member].lease.refund(now);
        }
    }

    fn count(&mut self, member: usize, charged: LeasedCharge) {
        match charged {
            LeasedCharge::Counted(Charged::Admitted { .. }) => self.admitted.push((self.now, member)),
            LeasedCharge::CountedAskSoon(Charged::Admitted { .. }) => {
                self.admitted.push((self.now, member));
                self.send(member);
            }
            LeasedCharge::Counted(Charged::Refused { .. }) | LeasedCharge::CountedAskSoon(_) => self.refused += 1,
            LeasedCharge::MustAsk => {
                self.members[member].waiting += 1;
                self.send(member);
            }
        }
    }

    pub(super) fn review(&mut self, member: usize) {
        let now = self.local(member);
        if self.members[member].asking.is_none() && self.members[member].lease.review(now) == Review::Ask {
            self.send(member);
        }
    }

    /// The gateway is replaced by a new process.
    pub(super) fn crash(&mut self, member: usize) {
        self.crashes += 1;
        let now = self.local(member);
        let crashed = &mut self.members[member];
        crashed.lease = RateLease::new(self.window, now);
        crashed.record = format!("gateway {member}, process {}", self.crashes);
        (crashed.asking, crashed.waiting) = (None, 0);
    }

    fn local(&self, member: usize) -> u64 {
        self.members[member].clock.read(self.now)
    }

    fn send(&mut self, member: usize) {
        let (now, local, network) = (self.now, self.local(member), self.network);
        let sender = &mut self.members[member];
        if sender.asking.is_some() {
            return;
        }
        self.asks += 1;
        let ask = sender.lease.ask(sender.record.clone(), sender.waiting, local);
        sender.asking = Some(Asking { ask: ask.clone(), sent: local, deadline: now + TIMEOUT });
        if let Some(there) = network.there {
            self.messages.push(LedgerMessage::Ask { at: now + there, member, ask, back: network.back });
        }
    }

    fn deliver(&mut self, message: LedgerMessage) {
        match message {
            LedgerMessage::Ask { at, member, ask, back } => {
                let grant = self.ledger.ask(&ask, self.now / 1000);
                if let Some(back) = back {
                    let (record, sequence) = (ask.record, ask.sequence);
                    self.messages.push(LedgerMessage::Answer { at: at + back, member, record, sequence, grant });
                }
                // Counted in the ledger, whether or not the answer arrives in time.
                self.admitted.extend(std::iter::repeat_n((self.now / 1000 * 1000, member), grant.charged as usize));
            }
            LedgerMessage::Answer { member, record, sequence, grant, .. } => {
                self.answer(member, &record, sequence, &grant)
            }
        }
    }

    fn answer(&mut self, member: usize, record: &str, sequence: u64, grant: &LeaseGrant) {
        let local = self.local(member);
        let asked = &mut self.members[member];
        let is_expected = |asking: &Asking| asked.record == record && asking.ask.sequence == sequence;
        let Some(asking) = asked.asking.take_if(|asking| is_expected(asking)) else { return };
        asked.lease.apply(&asking.ask, grant, asking.sent, local);
        // Those that the ledger has counted are admitted already; those of a lease are charged again.
        let waiting = std::mem::take(&mut asked.waiting);
        if asking.ask.need == 0 {
            self.members[member].waiting = waiting.saturating_sub(asking.ask.charge);
            self.refused += u64::from(asking.ask.charge.saturating_sub(grant.charged));
        } else {
            for _ in 0..waiting {
                let charged = self.members[member].lease.charge(self.window, local, ChargeTurn::Again);
                self.count(member, charged);
            }
        }
        if self.members[member].waiting > 0 || grant.share < asking.ask.held {
            self.send(member);
        }
    }

    fn give_up(&mut self, member: usize) {
        let late = &mut self.members[member];
        late.asking = None;
        self.refused += u64::from(std::mem::take(&mut late.waiting));
    }
}

/// The most admissions in any window, wherever it begins.
pub(super) fn most_in_a_window(admitted: &[(u64, usize)], per: Duration) -> usize {
    let per = u64::try_from(per.as_nanos()).unwrap_or(u64::MAX);
    let mut times: Vec<u64> = admitted.iter().map(|(at, _)| *at).collect();
    times.sort_unstable();
    let (mut most, mut first) = (0, 0);
    for (last, &at) in times.iter().enumerate() {
        while times[first] + per <= at {
            first += 1;
        }
        most = most.max(last - first + 1);
    }
    most
}
