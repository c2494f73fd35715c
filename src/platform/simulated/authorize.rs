//! The authorize page: who scans? On the real platform the phone knows; here a person picks, or the
//! simulator's own parameter `as` answers at once.

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::Response;
use url::Url;
use url::form_urlencoded::Serializer;

use super::back::{Return, redirect};
use super::ledger::Ledger;
use super::ledger::codes::{Grant, Scope};
use super::members::{App, CORP_ID, Person};
use super::pages::{self, Notice};
use super::query::Parameters;
use super::{Shared, path};

/// Who scans, answered at once.
pub const AS: &str = "as";
/// The answer to [`AS`] that refuses.
pub const DENY: &str = "deny";
/// Who scans, to be asked for their consent.
const PICK: &str = "pick";

/// Why there is no page to choose on.
pub enum Fault {
    /// This parameter is missing or wrong.
    Parameter(&'static str),
    /// Nobody returns to this address.
    Domain(String),
}

impl From<&'static str> for Fault {
    fn from(parameter: &'static str) -> Self {
        Fault::Parameter(parameter)
    }
}

impl Fault {
    /// What the browser gets.
    pub fn answer(self) -> Response {
        match self {
            Fault::Parameter(name) => pages::notice(Notice::WrongParameter(name)),
            Fault::Domain(uri) => {
                let mut query = Serializer::new(String::new());
                query.append_pair("err_type", "domain_err").append_pair("uri", &uri);
                redirect(&format!("{}?{}", path::URI_CONFIRM, query.finish()))
            }
        }
    }
}

/// What the application asked for, checked as the platform checks it.
struct Request {
    back: Return,
    app: Option<&'static App>,
    scope: Scope,
}

impl Request {
    fn read(parameters: &Parameters) -> Result<Self, Fault> {
        if parameters.get("appid") != Some(CORP_ID) {
            return Err("appid".into());
        }
        let back = read_return(parameters)?;
        if parameters.get("response_type") != Some("code") {
            return Err("response_type".into());
        }
        let scope = match parameters.get("scope") {
            Some("snsapi_base") => Scope::Base,
            Some("snsapi_privateinfo") => Scope::PrivateInfo,
            _ => return Err("scope".into()),
        };
        let app = parameters.get("agentid").map(|id| App::find(id).ok_or("agentid")).transpose()?;
        if scope == Scope::PrivateInfo && app.is_none() {
            return Err("agentid".into());
        }
        Ok(Self { back, app, scope })
    }

    /// The application that this person is to be asked about, if they are to be asked.
    fn asks(&self, ledger: &Ledger, person: &Person) -> Option<&'static App> {
        let app = self.app.filter(|_| self.scope == Scope::PrivateInfo)?;
        let new = !ledger.codes.has_agreed(person.member, app, ledger.now());
        (new && person.shows_private_info(app, &ledger.switches)).then_some(app)
    }

    /// Sends this person back with a code.
    fn agree(&self, ledger: &mut Ledger, person: &Person) -> Response {
        if ledger.switches.deny_at_scan {
            return self.back.answer(ledger, None);
        }
        let now = ledger.now();
        if let Some(app) = self.asks(ledger, person) {
            ledger.codes.agree(person.member, app, now);
        }
        let grant = Grant { member: person.member, app: self.app, domain: self.back.domain(), scope: self.scope };
        let code = ledger.codes.give(grant, ledger.switches.code_lifetime, now);
        self.back.answer(ledger, Some(&code))
    }
}

/// Where to go back to. An address that was encoded twice has no domain, so it is not trusted.
pub fn read_return(parameters: &Parameters) -> Result<Return, Fault> {
    let given = parameters.get("redirect_uri");
    let result = Return::read(given, parameters.get("state"));
    match (result, given) {
        (Err("redirect_uri"), Some(text)) if is_encoded_twice(text) => Err(Fault::Domain(text.to_owned())),
        (result, _) => Ok(result?),
    }
}

fn is_encoded_twice(text: &str) -> bool {
    let decoded: String = url::form_urlencoded::parse(text.as_bytes()).map(|(name, _)| name).collect();
    decoded != text && Url::parse(&decoded).is_ok_and(|url| url.has_host())
}

/// `GET /connect/oauth2/authorize`
pub async fn page(State(shared): State<Shared>, headers: HeaderMap, parameters: Parameters) -> Response {
    let agent = headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
    let mut ledger = shared.ledger();
    if ledger.switches.client_only && !is_client(agent) {
        return pages::notice(Notice::ClientOnly);
    }
    answer(&mut ledger, &parameters).unwrap_or_else(Fault::answer)
}

/// The platform's own clients call themselves both; the consumer's messenger only the second.
fn is_client(agent: &str) -> bool {
    let agent = agent.to_ascii_lowercase();
    agent.contains("wxwork") || agent.contains("micromessenger")
}

fn answer(ledger: &mut Ledger, parameters: &Parameters) -> Result<Response, Fault> {
    let request = Request::read(parameters)?;
    if !ledger.anybody_trusts(&request.back.domain()) {
        return Err(Fault::Domain(parameters.get("redirect_uri").unwrap_or_default().to_owned()));
    }
    if parameters.get(AS) == Some(DENY) {
        return Ok(request.back.answer(ledger, None));
    }
    if let Some(text) = parameters.get(AS) {
        let person = ledger.person(text).ok_or(AS)?;
        return Ok(request.agree(ledger, &person));
    }
    let deny = parameters.link(AS, DENY, &[PICK]);
    let target = request.back.domain();
    if let Some(text) = parameters.get(PICK) {
        let person = ledger.person(text).ok_or(PICK)?;
        if request.asks(ledger, &person).is_none() {
            return Ok(request.agree(ledger, &person));
        }
        let allow = parameters.link(AS, person.member.userid, &[PICK]);
        return Ok(pages::consent(person.member.name, &target, &allow, &deny));
    }
    let parameter = match request.scope {
        Scope::Base => AS,
        Scope::PrivateInfo => PICK,
    };
    Ok(pages::choose(ledger, &target, |person| match person {
        Some(person) => parameters.link(parameter, person.member.userid, &[]),
        None => deny.clone(),
    }))
}

/// `GET /wwopen/uriconfirm`: where a browser is sent whose `redirect_uri` is not trusted.
pub async fn domain_fault(parameters: Parameters) -> Response {
    pages::notice(Notice::DomainNotTrusted(parameters.get("uri").unwrap_or_default()))
}
