//! QR-code sign-in: a ticket for the browser, a scan id for the phone, and the way from one to the other.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use tokio::sync::{Mutex as AsyncMutex, Notify};

use super::attempt::Attempt;
use super::{Device, SignIn};
use crate::config::QrConfirm;
use crate::domain::client::Client;
use crate::domain::clock::Timestamp;
use crate::domain::secret::{Digest, constant_time_eq, random_below, random_name};
use crate::domain::session::{EndCause, LoginMethod, LoginSource, Session, Version};
use crate::domain::ticket::{BrowserId, ConfirmId, ScanId, Scanner, Ticket, TicketId, TicketState};
use crate::domain::write::WriteOutcome;
use crate::error::{BadRequest, Error, Forbidden, Part};
use crate::platform::AuthorizeRequest;
use crate::qr;
use crate::store::Change;

/// What marks the `state` of a scanned code.
pub const STATE_PREFIX: &str = "qr";

/// Invalid codes that a ticket bears.
const MOST_MISSES: u8 = 5;

/// A new ticket, as the asking browser gets it.
#[derive(Debug, Serialize)]
pub struct IssuedTicket {
    /// Kept by the browser; never in the code.
    pub ticket: TicketId,
    /// What the code says.
    pub qrcode_url: String,
    /// The code.
    pub qrcode_png_base64: String,
    /// Seconds until it is over.
    pub expires_in: u64,
    /// The moment at which it is over.
    pub expires_at: String,
    /// The two digits that both screens show.
    pub number: String,
    /// Seconds to wait between two polls.
    pub poll_interval: u64,
}

/// Where a ticket stands, as the poll endpoint tells. It has no `Debug`: a confirmed one holds a token.
#[derive(Clone, Serialize, PartialEq, Eq)]
pub struct ScanState {
    /// `waiting`, `scanned`, `confirmed` or `expired`.
    pub status: &'static str,
    /// Who scanned, once somebody has.
    pub employee_id: Option<String>,
    /// Their name.
    pub name: Option<String>,
    /// The token, once confirmed.
    pub token: Option<String>,
}

impl ScanState {
    const EXPIRED: ScanState = ScanState { status: "expired", employee_id: None, name: None, token: None };

    fn of(status: &'static str, by: Option<&Scanner>, token: Option<String>) -> Self {
        Self { status, employee_id: by.map(|by| by.employee_id.to_string()), name: by.map(|by| by.name.clone()), token }
    }
}

/// What a scan leads to.
#[derive(Debug, Clone)]
pub enum Scanned {
    /// The phone must confirm.
    Confirm {
        /// Which code.
        scan_id: ScanId,
        /// The phone's proof that it is the one that scanned.
        confirm: ConfirmId,
    },
    /// Nothing more is needed.
    Confirmed,
}

/// What the phone's confirm page shows.
#[derive(Debug, Clone)]
pub struct Asking {
    /// Who scanned.
    pub name: String,
    /// The asking browser's address.
    pub address: String,
    /// The asking browser's `User-Agent`.
    pub user_agent: String,
    /// When it asked.
    pub at: Timestamp,
    /// How long ago that is.
    pub ago: Duration,
    /// The two digits.
    pub number: String,
}

/// The phone's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Sign the browser in.
    Confirm,
    /// Do not.
    Cancel,
}

/// Long polls that wait for a ticket. Each costs a long_polls task and no timer of its own kind.
#[derive(Default)]
pub struct LongPolls {
    waiting: Mutex<HashMap<TicketId, Arc<Waiters>>>,
}

/// Where the pollers of one ticket wait.
#[derive(Default)]
struct Waiters {
    moved: Notify,
    /// Held while the token is made, so that many pollers make one.
    delivering: AsyncMutex<()>,
}

/// A poller's place on a waiters; the waiters goes when nobody sits on it, also when a poll is dropped.
struct WaiterGuard<'a> {
    long_polls: &'a LongPolls,
    id: &'a TicketId,
    waiters: Option<Arc<Waiters>>,
}

impl Drop for WaiterGuard<'_> {
    fn drop(&mut self) {
        let mut waiting = self.long_polls.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiters = None;
        if waiting.get(self.id).is_some_and(|waiters| Arc::strong_count(waiters) == 1) {
            waiting.remove(self.id);
        }
    }
}

impl LongPolls {
    fn join<'a>(&'a self, id: &'a TicketId) -> (Arc<Waiters>, WaiterGuard<'a>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let waiters = waiting.entry(id.clone()).or_default().clone();
        (waiters.clone(), WaiterGuard { long_polls: self, id, waiters: Some(waiters) })
    }

    fn wake(&self, id: &TicketId) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(waiters) = waiting.get(id) {
            waiters.moved.notify_waiters();
        }
    }

    fn wake_all(&self) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        for waiters in waiting.values() {
            waiters.moved.notify_waiters();
        }
    }
}

/// The browser that asks for a code.
#[derive(Debug, Clone, Copy)]
pub struct Asker<'a> {
    /// From where.
    pub device: &'a Device,
    /// Its own cookie; a program has none.
    pub browser: Option<&'a BrowserId>,
    /// The web client whose page it shows, if that is known.
    pub client: Option<Client>,
}

/// Whether whoever polls with this cookie may: a browser's ticket is that browser's alone, so that nobody else can
/// collect, and no page can be made to wait for somebody else's.
fn may_poll(ticket: &Ticket, cookie: Option<&str>) -> bool {
    let Some(print) = &ticket.browser else { return true };
    cookie.is_some_and(|cookie| constant_time_eq(Digest::of(&[cookie]).as_str().as_bytes(), print.as_str().as_bytes()))
}

impl SignIn {
    /// Issues a ticket and its code. Refuses while a scan would come to nothing.
    pub async fn issue_ticket(&self, asker: Asker<'_>) -> Result<IssuedTicket, Error> {
        self.platform_answers()?;
        let Asker { device, browser, client } = asker;
        let now = self.clock.now();
        let ticket = Ticket {
            id: TicketId::new(random_name(32)),
            scan_id: ScanId::new(random_name(32)),
            number: u8::try_from(10 + random_below(90)).unwrap_or(10),
            version: Version::FIRST,
            state: TicketState::Waiting,
            created_at: now,
            expires_at: now.plus(self.settings.ticket.lifetime.get()),
            address: device.address.clone(),
            user_agent: device.user_agent.clone(),
            client,
            misses: 0,
            browser: browser.map(|browser| Digest::of(&[browser.as_str()])),
        };
        let state = format!("{STATE_PREFIX}{}", ticket.scan_id);
        let redirect_uri = format!("{}/api/auth/oauth2/callback", self.settings.public_url);
        let request = AuthorizeRequest { redirect_uri: &redirect_uri, state: &state };
        let qrcode_url = String::from(self.platform.authorize_url(request));
        let picture = qr::png(&qrcode_url).map_err(|fault| Error::unexpected(Part::Gateway, fault))?;
        self.live.store().create_ticket(&ticket).await?;
        self.metrics.tickets.with_label_values(&["waiting"]).inc();
        Ok(IssuedTicket {
            ticket: ticket.id,
            qrcode_url,
            qrcode_png_base64: STANDARD.encode(picture),
            expires_in: now.seconds_until(ticket.expires_at),
            expires_at: ticket.expires_at.iso8601(),
            number: ticket.number.to_string(),
            poll_interval: self.settings.ticket.poll_interval.get().as_secs().max(1),
        })
    }

    /// Tells where a ticket stands; waits up to `wait` for it to be elsewhere than `seen`, or than
    /// where it is now. An unknown ticket is expired, just like an old one.
    pub async fn poll_ticket(
        &self,
        id: &str,
        cookie: Option<&str>,
        wait: Duration,
        seen: Option<&str>,
    ) -> Result<ScanState, Error> {
        let id = &TicketId::new(id);
        let (waiters, _guard) = self.long_polls.join(id);
        let deadline = tokio::time::Instant::now() + wait.min(self.settings.ticket.longest_wait.get());
        let mut seen = seen.map(str::to_owned);
        loop {
            // Listening starts before looking, so that no move falls between the two.
            let mut moved = std::pin::pin!(waiters.moved.notified());
            moved.as_mut().enable();
            let (state, end) = self.look_at_ticket(id, cookie, &waiters).await?;
            let held = matches!(state.status, "waiting" | "scanned");
            let baseline = seen.get_or_insert_with(|| state.status.to_owned());
            if !held || state.status != *baseline || tokio::time::Instant::now() >= deadline {
                return Ok(state);
            }
            let until_end = tokio::time::Instant::now() + self.clock.now().until(end);
            tokio::select! {
                () = moved => {}
                () = tokio::time::sleep_until(deadline.min(until_end)) => {}
            }
        }
    }

    /// The state of a ticket, and when it ends by itself. Hands the token out when it is due.
    async fn look_at_ticket(
        &self,
        id: &TicketId,
        cookie: Option<&str>,
        waiters: &Waiters,
    ) -> Result<(ScanState, Timestamp), Error> {
        let now = self.clock.now();
        let expired = || Ok((ScanState::EXPIRED, now));
        let Some(ticket) = self.live.store().ticket(id).await? else { return expired() };
        if ticket.is_over(now) || !may_poll(&ticket, cookie) {
            return expired();
        }
        let end = ticket.expires_at;
        match &ticket.state {
            TicketState::Waiting => Ok((ScanState::of("waiting", None, None), end)),
            TicketState::Scanned { by, .. } => Ok((ScanState::of("scanned", Some(by), None), end)),
            TicketState::Cancelled => expired(),
            TicketState::Confirmed { .. } | TicketState::Delivered { .. } => {
                let _turn = waiters.delivering.lock().await;
                match self.deliver(id).await? {
                    Some((by, session)) => {
                        let token = self.tokens.mint(&session, self.clock.now());
                        Ok((ScanState::of("confirmed", Some(&by), Some(token)), end))
                    }
                    None => expired(),
                }
            }
        }
    }

    /// The session of a confirmed ticket: made at the first call, the same one for the rest of the
    /// delivery window.
    async fn deliver(&self, id: &TicketId) -> Result<Option<(Scanner, Session)>, Error> {
        loop {
            let now = self.clock.now();
            let Some(ticket) = self.live.store().ticket(id).await?.filter(|ticket| !ticket.is_over(now)) else {
                return Ok(None);
            };
            let by = match &ticket.state {
                TicketState::Delivered { by, session, .. } => {
                    let known = self.live.session(session, now).await?;
                    return Ok(known.map(|known| (by.clone(), known.session.clone())));
                }
                TicketState::Confirmed { by } => by.clone(),
                _ => return Ok(None),
            };
            let session = self.begin_for_ticket(&ticket, &by).await?;
            let until = now.plus(Ticket::DELIVERY_WINDOW);
            let state = TicketState::Delivered { by: by.clone(), session: session.id.clone(), until };
            if self.move_ticket(&ticket, state).await? == WriteOutcome::Applied {
                return Ok(Some((by, session)));
            }
            // Another gateway was faster; its session is the one that counts.
            self.live.end(&session.id, EndCause::Operator).await?;
        }
    }

    async fn begin_for_ticket(&self, ticket: &Ticket, by: &Scanner) -> Result<Session, Error> {
        let device = Device {
            address: ticket.address.clone(),
            user_agent: ticket.user_agent.clone(),
            request_id: String::new(),
        };
        let mut attempt = ticket_attempt(ticket, &device);
        attempt.is(&by.corp_id, &by.employee_id);
        let begun = async {
            let employee = self.directory.employee(&by.corp_id, &by.employee_id).await?;
            let employee = employee.ok_or(Forbidden::EmployeeUnknown)?;
            let roles = self.roles_of(&employee).await?;
            self.begin(&employee, roles, &mut attempt).await
        }
        .await;
        match &begun {
            Ok(session) => tracing::info!(
                target: "deskgate::audit",
                { employee.id = by.employee_id.as_str(), session.id = session.id.as_str(),
                  client.address = &*ticket.address, phone.address = &*by.address },
                "signed in by a phone's confirmation"
            ),
            Err(error) => self.record_refusal(&attempt, error).await,
        }
        begun
    }

    /// The phone came back from the platform: the code is scanned.
    pub(super) async fn scan(&self, scan_id: &ScanId, by: Scanner) -> Result<Scanned, Error> {
        let ticket = self.open_ticket(scan_id).await?;
        if ticket.state != TicketState::Waiting {
            return Err(BadRequest::TicketOver.into());
        }
        let confirm = ConfirmId::new(random_name(32));
        let (state, scanned) = match self.settings.confirm {
            QrConfirm::Tap => (
                TicketState::Scanned { by, confirm: confirm.clone() },
                Scanned::Confirm { scan_id: scan_id.clone(), confirm },
            ),
            QrConfirm::Auto => (TicketState::Confirmed { by }, Scanned::Confirmed),
        };
        match self.move_ticket(&ticket, state).await? {
            WriteOutcome::Applied => Ok(scanned),
            WriteOutcome::Conflict => Err(BadRequest::TicketOver.into()),
        }
    }

    /// What the phone's confirm page shows, to the phone that scanned.
    pub async fn asking(&self, scan_id: &ScanId, confirm: &ConfirmId) -> Result<Asking, Error> {
        let ticket = self.open_ticket(scan_id).await?;
        let by = self.scanner(&ticket, confirm)?;
        Ok(Asking {
            name: by.name,
            address: ticket.address,
            user_agent: ticket.user_agent,
            at: ticket.created_at,
            ago: ticket.created_at.until(self.clock.now()),
            number: ticket.number.to_string(),
        })
    }

    /// The phone that scanned has answered.
    pub async fn answer_scan(
        &self,
        scan_id: &ScanId,
        confirm: &ConfirmId,
        answer: Answer,
        device: &Device,
    ) -> Result<(), Error> {
        let ticket = self.open_ticket(scan_id).await?;
        let by = self.scanner(&ticket, confirm)?;
        let state = match answer {
            Answer::Confirm => TicketState::Confirmed { by: by.clone() },
            Answer::Cancel => TicketState::Cancelled,
        };
        match self.move_ticket(&ticket, state).await? {
            WriteOutcome::Applied if answer == Answer::Cancel => {
                let error = BadRequest::SignInDeclined.into();
                let mut attempt = ticket_attempt(&ticket, device);
                attempt.is(&by.corp_id, &by.employee_id);
                self.record_refusal(&attempt, &error).await;
                Ok(())
            }
            WriteOutcome::Applied => Ok(()),
            WriteOutcome::Conflict => Err(BadRequest::TicketOver.into()),
        }
    }

    /// Somebody came with this scan id and a code that the platform did not give. A phone does so once in a while;
    /// whoever goes on is trying codes, each of which is a call to the platform.
    pub(super) async fn count_miss(&self, ticket: &Ticket) -> Result<(), Error> {
        let misses = ticket.misses.saturating_add(1);
        let state = if misses >= MOST_MISSES { TicketState::Cancelled } else { ticket.state.clone() };
        let moved = Ticket { version: ticket.version.next(), state, misses, ..ticket.clone() };
        // Somebody else's change in between counts more than this one.
        self.live.store().advance(&moved, ticket.version).await?;
        Ok(())
    }

    /// A ticket went on, here or elsewhere: those who wait for it look again.
    pub fn apply_change(&self, change: &Change) {
        if let Change::TicketMoved(id) = change {
            self.long_polls.wake(id);
        }
    }

    /// Changes may have been missed: everybody looks again.
    pub fn wake_all_polls(&self) {
        self.long_polls.wake_all();
    }

    pub(super) async fn open_ticket(&self, scan_id: &ScanId) -> Result<Ticket, Error> {
        let found = self.live.store().ticket_of_scan(scan_id).await?;
        let open = found.filter(|ticket| !ticket.is_over(self.clock.now()));
        open.ok_or(Error::BadRequest(BadRequest::TicketOver))
    }

    fn scanner(&self, ticket: &Ticket, confirm: &ConfirmId) -> Result<Scanner, Error> {
        match &ticket.state {
            TicketState::Scanned { by, confirm: expected }
                if constant_time_eq(expected.as_str().as_bytes(), confirm.as_str().as_bytes()) =>
            {
                Ok(by.clone())
            }
            _ => Err(BadRequest::TicketOver.into()),
        }
    }

    async fn move_ticket(&self, ticket: &Ticket, state: TicketState) -> Result<WriteOutcome, Error> {
        let moved = Ticket { version: ticket.version.next(), state, ..ticket.clone() };
        let outcome = self.live.store().advance(&moved, ticket.version).await?;
        if outcome == WriteOutcome::Applied {
            self.metrics.tickets.with_label_values(&[moved.state.as_str()]).inc();
        }
        Ok(outcome)
    }
}

/// A sign-in by QR code, as the login log has it.
fn ticket_attempt<'a>(ticket: &Ticket, device: &'a Device) -> Attempt<'a> {
    Attempt::new(LoginMethod::Qrcode, device).at(ticket.client).from(LoginSource::Qrcode)
}
