//! QR-code sign-in: a ticket for the browser, a scan id for the phone. This file issues and polls tickets; the phone's
//! part is in [`phone`].

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use super::attempt::Attempt;
use super::identity_provider::IdentityProvider;
use super::issuer::SessionIssuer;
use super::login_log::LoginLog;
use super::roles::Roles;
use crate::config::{QrConfirm, TicketConfig};
use crate::directory::Directory;
use crate::domain::client::Client;
use crate::domain::clock::{Clock, Timestamp};
use crate::domain::device::ClientDevice;
use crate::domain::network::Network;
use crate::domain::secret::{Digest, constant_time_eq, random_below, random_name};
use crate::domain::session::{EndCause, LoginMethod, LoginSource, Session, Version};
use crate::domain::ticket::{BrowserId, ScanId, Scanner, Ticket, TicketDigest, TicketId, TicketState};
use crate::domain::write::WriteOutcome;
use crate::error::{BadRequest, Error, Forbidden, Part};
use crate::metrics::Metrics;
use crate::platform::AuthorizeRequest;
use crate::qr;
use crate::sessions::SessionCache;
use crate::store::{Change, Store};
use long_polls::{LongPolls, Patience, Waiters};

mod long_polls;

pub mod phone;

/// The prefix of a scanned code's `state` parameter; the scan id follows.
pub(super) const STATE_PREFIX: &str = "qr";

/// Who requests a ticket.
#[derive(Debug, Clone, Copy)]
pub struct TicketRequest<'a> {
    /// The device that shows the code.
    pub device: &'a ClientDevice,
    /// The browser's cookie; programs have none.
    pub browser: Option<&'a BrowserId>,
    /// The web client whose page shows the code, if known.
    pub client: Option<Client>,
}

/// A poll of a ticket.
#[derive(Debug, Clone, Copy)]
pub struct TicketPoll<'a> {
    /// The ticket, unchecked.
    pub ticket: &'a str,
    /// The browser's cookie.
    pub cookie: Option<&'a str>,
    /// How long to wait for a change.
    pub wait: Duration,
    /// The status that the client has seen.
    pub seen: Option<&'a str>,
    /// The device that polls.
    pub device: &'a ClientDevice,
}

/// A new ticket, as the requesting browser gets it.
#[derive(Debug, Serialize)]
pub struct IssuedTicket {
    /// Kept by the browser; never part of the QR code.
    ticket: TicketId,
    qrcode_url: String,
    qrcode_png_base64: String,
    expires_in: u64,
    expires_at: String,
    /// The two digits that both screens show.
    number: String,
    /// Seconds to wait between two polls.
    poll_interval: u64,
}

/// A ticket's status for the poll endpoint. It has no `Debug`: a confirmed one holds a token.
#[derive(Clone, Serialize, PartialEq, Eq)]
pub struct TicketStatus {
    /// `waiting`, `scanned`, `confirmed` or `expired`.
    status: &'static str,
    employee_id: Option<String>,
    name: Option<String>,
    token: Option<String>,
    /// Why an `expired` ticket ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<EndReason>,
}

/// Why a ticket ended. All that the requesting browser learns: it may not know who scanned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum EndReason {
    /// Cancelled on the phone.
    Cancelled,
    /// The person who scanned may not sign in.
    Refused,
    /// Anything else; unknown tickets, too.
    Expired,
}

impl TicketStatus {
    fn new(status: &'static str, by: Option<&Scanner>, token: Option<String>) -> Self {
        let (employee_id, name) = (by.map(|by| by.employee_id.to_string()), by.map(|by| by.name.clone()));
        Self { status, employee_id, name, token, reason: None }
    }

    fn ended(reason: EndReason) -> Self {
        Self { reason: Some(reason), ..Self::new("expired", None, None) }
    }
}

/// The ids of the two requests that can decide a confirmed sign-in: the phone's, if it succeeds, and the browser's poll, if
/// the employee may no longer sign in by then.
#[derive(Debug, Clone, Copy)]
struct DecidingRequests<'a> {
    confirmed: &'a str,
    polled: &'a str,
}

/// QR-code sign-in.
pub struct Tickets {
    pub(super) store: Arc<dyn Store>,
    pub(super) sessions: Arc<SessionCache>,
    pub(super) directory: Arc<dyn Directory>,
    pub(super) provider: Arc<IdentityProvider>,
    pub(super) roles: Roles,
    pub(super) issuer: Arc<SessionIssuer>,
    pub(super) login_log: Arc<LoginLog>,
    pub(super) clock: Clock,
    pub(super) metrics: Arc<Metrics>,
    pub(super) long_polls: LongPolls,
    pub(super) config: TicketConfig,
    pub(super) confirm: QrConfirm,
    /// Where the platform sends the phone after the scan.
    pub(super) callback_url: String,
}

impl Tickets {
    /// Issues a ticket and its QR code. Refuses while the platform is unavailable, because the scan would fail.
    pub async fn issue(&self, request: TicketRequest<'_>) -> Result<IssuedTicket, Error> {
        self.provider.check_available()?;
        let TicketRequest { device, browser, client } = request;
        let now = self.clock.now();
        let (id, scan_id) = (TicketId::new(random_name(32)), ScanId::new(random_name(32)));
        let ticket = Ticket {
            id: id.digest(),
            scan_id: scan_id.digest(),
            number: u8::try_from(10 + random_below(90)).unwrap_or(10),
            version: Version::FIRST,
            state: TicketState::Waiting,
            created_at: now,
            expires_at: now.plus(self.config.lifetime.get()),
            address: device.address.clone(),
            user_agent: device.user_agent.clone(),
            client,
            misses: 0,
            browser: browser.map(|browser| Digest::of(&[browser.as_str()])),
        };
        let state = format!("{STATE_PREFIX}{scan_id}");
        let request = AuthorizeRequest { redirect_uri: &self.callback_url, state: &state };
        let qrcode_url = self.provider.authorize_url(request);
        let png = qr::png(&qrcode_url).map_err(|fault| Error::unexpected(Part::Gateway, fault))?;
        self.store.create_ticket(&ticket).await?;
        self.metrics.tickets.with_label_values(&["waiting"]).inc();
        Ok(IssuedTicket {
            ticket: id,
            qrcode_url,
            qrcode_png_base64: STANDARD.encode(png),
            expires_in: now.seconds_until(ticket.expires_at),
            expires_at: ticket.expires_at.iso8601(),
            number: ticket.number.to_string(),
            poll_interval: self.config.poll_interval.get().as_secs().max(1),
        })
    }

    /// Returns a ticket's status. Waits for it to differ from `seen`, or from the current one if `seen` is absent, but
    /// not for a client that has `disconnected` and not during a drain. An unknown ticket is reported as expired; a poll
    /// beside too many waiting ones is answered at once.
    pub async fn poll(
        &self,
        poll: TicketPoll<'_>,
        disconnected: impl Future<Output = ()>,
    ) -> Result<TicketStatus, Error> {
        let TicketPoll { ticket, cookie, wait, seen, device } = poll;
        let id = &TicketId::new(ticket).digest();
        let asks = if wait.is_zero() { Patience::AtOnce } else { Patience::Wait };
        let guard = self.long_polls.join(id, Network::of_text(&device.address), asks);
        let longest_wait = match guard.patience {
            Patience::Wait => wait.min(self.config.longest_wait.get()),
            Patience::AtOnce => Duration::ZERO,
            Patience::Crowded => {
                self.metrics.count_limit_reached("waiting_polls");
                Duration::ZERO
            }
        };
        let waiters = guard.waiters();
        let deadline = tokio::time::Instant::now() + longest_wait;
        let mut seen = seen.map(str::to_owned);
        let mut disconnected = pin!(disconnected);
        loop {
            // Subscribes before it reads the ticket, so that no change falls between the two.
            let mut changed = pin!(waiters.changed.notified());
            changed.as_mut().enable();
            // Boxed, so that a poll that waits does not hold its memory.
            let (status, end) = Box::pin(self.status(id, cookie, waiters, device)).await?;
            let pending = matches!(status.status, "waiting" | "scanned");
            let baseline = seen.get_or_insert_with(|| status.status.to_owned());
            let may_wait = tokio::time::Instant::now() < deadline && !self.long_polls.has_ended();
            if !pending || status.status != *baseline || !may_wait {
                return Ok(status);
            }
            tokio::select! {
                () = changed => {}
                () = self.clock.sleep_until(end) => {}
                () = tokio::time::sleep_until(deadline) => {}
                () = &mut disconnected => return Ok(status),
            }
        }
    }

    /// The status of a ticket, and when it expires. Delivers the token of a confirmed one.
    async fn status(
        &self,
        id: &TicketDigest,
        cookie: Option<&str>,
        waiters: &Waiters,
        device: &ClientDevice,
    ) -> Result<(TicketStatus, Timestamp), Error> {
        let now = self.clock.now();
        let ended = |reason| Ok((TicketStatus::ended(reason), now));
        let found = self.store.ticket(id).await?.filter(|ticket| may_poll(ticket, cookie) && !ticket.is_expired(now));
        let Some(ticket) = found else { return ended(EndReason::Expired) };
        let end = ticket.expires_at;
        match &ticket.state {
            TicketState::Waiting => Ok((TicketStatus::new("waiting", None, None), end)),
            TicketState::Scanned { by, .. } => Ok((TicketStatus::new("scanned", Some(by), None), end)),
            TicketState::Cancelled => ended(EndReason::Cancelled),
            TicketState::Refused => ended(EndReason::Refused),
            TicketState::Confirmed { .. } | TicketState::Delivered { .. } => {
                let _delivery = waiters.delivery.lock().await;
                match self.deliver(id, device).await {
                    Ok(Some((by, session))) => {
                        let token = self.issuer.mint(&session);
                        Ok((TicketStatus::new("confirmed", Some(&by), Some(token)), end))
                    }
                    Ok(None) => ended(EndReason::Expired),
                    Err(Error::Forbidden(_)) => ended(EndReason::Refused),
                    Err(error) => Err(error),
                }
            }
        }
    }

    /// The session of a confirmed ticket: created by the first poll, and the same one for the rest of the delivery
    /// window. `device` is the one that polls.
    async fn deliver(&self, id: &TicketDigest, device: &ClientDevice) -> Result<Option<(Scanner, Session)>, Error> {
        loop {
            let now = self.clock.now();
            let Some(ticket) = self.store.ticket(id).await?.filter(|ticket| !ticket.has_ended(now)) else {
                return Ok(None);
            };
            let (by, confirmed_by) = match &ticket.state {
                TicketState::Delivered { by, session, .. } => {
                    let cached = self.sessions.session(session, now).await?;
                    return Ok(cached.map(|cached| (by.clone(), cached.session.clone())));
                }
                TicketState::Confirmed { by, request_id } => (by.clone(), request_id),
                _ => return Ok(None),
            };
            let requests = DecidingRequests { confirmed: confirmed_by, polled: &device.request_id };
            let session = match self.create_session(&ticket, &by, requests).await {
                Err(refusal @ Error::Forbidden(_)) => {
                    self.advance(&ticket, TicketState::Refused).await?;
                    return Err(refusal);
                }
                created => created?,
            };
            let until = now.plus(Ticket::DELIVERY_WINDOW);
            let state = TicketState::Delivered { by: by.clone(), session: session.id.clone(), until };
            if self.advance(&ticket, state).await? == WriteOutcome::Applied {
                return Ok(Some((by, session)));
            }
            // Another gateway delivered first, so its session is used and this one is ended.
            self.sessions.end(&session.id, EndCause::Operator).await?;
        }
    }

    async fn create_session(
        &self,
        ticket: &Ticket,
        by: &Scanner,
        requests: DecidingRequests<'_>,
    ) -> Result<Session, Error> {
        let device = |request_id: &str| ClientDevice {
            address: ticket.address.clone(),
            user_agent: ticket.user_agent.clone(),
            request_id: request_id.to_owned(),
        };
        let (confirmed, polled) = (device(requests.confirmed), device(requests.polled));
        let mut attempt = attempt_for(ticket, &confirmed);
        attempt.set_proved(&by.corp_id, &by.employee_id);
        attempt.platform_account.clone_from(&by.platform_account);
        let created = async {
            let employee = self.directory.employee(&by.corp_id, &by.employee_id).await?;
            let employee = employee.ok_or(Forbidden::EmployeeUnknown)?;
            let roles = self.roles.for_sign_in(&employee).await?;
            self.issuer.create(&employee, roles, &mut attempt).await
        }
        .await;
        match &created {
            Ok(session) => tracing::info!(
                target: "deskgate::audit",
                { request.id = requests.confirmed, employee.id = by.employee_id.as_str(), session.id = session.id.as_str(),
                  client.address = &*ticket.address, phone.address = &*by.address },
                "signed in by QR code"
            ),
            Err(error) => {
                attempt.device = &polled;
                self.login_log.record_refusal(&attempt, error).await;
            }
        }
        created
    }

    /// Wakes the polls of a ticket that changed, on this gateway or another.
    pub(super) fn apply_change(&self, change: &Change) {
        if let Change::TicketMoved(id) = change {
            self.long_polls.wake(id);
        }
    }

    /// Wakes all polls, because changes may have been missed.
    pub(super) fn wake_all_polls(&self) {
        self.long_polls.wake_all();
    }

    /// Answers all polls at once from now on.
    pub(super) fn end_polls(&self) {
        self.long_polls.end();
    }

    /// The ticket of a scan id; refuses one that has expired or was used.
    pub(super) async fn open_ticket(&self, scan_id: &ScanId) -> Result<Ticket, Error> {
        let found = self.store.ticket_of_scan(&scan_id.digest()).await?;
        let open = found.filter(|ticket| !ticket.has_ended(self.clock.now()));
        open.ok_or(Error::BadRequest(BadRequest::TicketEnded))
    }

    async fn advance(&self, ticket: &Ticket, state: TicketState) -> Result<WriteOutcome, Error> {
        let advanced = Ticket { version: ticket.version.next(), state, ..ticket.clone() };
        let outcome = self.store.advance(&advanced, ticket.version).await?;
        if outcome == WriteOutcome::Applied {
            self.metrics.tickets.with_label_values(&[advanced.state.as_str()]).inc();
        }
        Ok(outcome)
    }
}

/// Whether a poll with this cookie may see the ticket. A browser's ticket is only for that browser: no other client can
/// collect its token, and no page can be made to wait for another user's ticket.
fn may_poll(ticket: &Ticket, cookie: Option<&str>) -> bool {
    let Some(digest) = &ticket.browser else { return true };
    cookie.is_some_and(|cookie| constant_time_eq(Digest::of(&[cookie]).as_str().as_bytes(), digest.as_str().as_bytes()))
}

/// A sign-in by QR code, for the login log.
fn attempt_for<'a>(ticket: &Ticket, device: &'a ClientDevice) -> Attempt<'a> {
    Attempt::new(LoginMethod::Qrcode, device).with_client(ticket.client).with_source(LoginSource::Qrcode)
}
