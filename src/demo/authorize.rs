//! The authorize page. On the real platform the phone identifies its owner; here a person picks a member, or the
//! simulator's own parameter `as` names one.

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::Response;

use super::link::{CallbackTarget, LinkFault, Parameters};
use super::members::{Application, CORP_ID, EffectiveMember};
use super::pages::{self, PlatformNotice};
use super::state::credentials::{AuthorizeScope, CodeGrant};
use super::state::{PlatformState, SharedState};

/// The parameter that names the member who scans, without asking for consent.
pub const AS: &str = "as";
/// The value of [`AS`] that denies the request.
pub const DENY: &str = "deny";
/// The parameter that names the member who scans and is asked for consent.
const PICK: &str = "pick";

/// The parameters of an authorize URL, validated as the platform does.
struct AuthorizeParameters {
    callback: CallbackTarget,
    application: Option<&'static Application>,
    scope: AuthorizeScope,
}

impl AuthorizeParameters {
    fn read(parameters: &Parameters) -> Result<Self, LinkFault> {
        if parameters.get("appid") != Some(CORP_ID) {
            return Err("appid".into());
        }
        let callback = CallbackTarget::read(parameters)?;
        if parameters.get("response_type") != Some("code") {
            return Err("response_type".into());
        }
        let scope = match parameters.get("scope") {
            Some("snsapi_base") => AuthorizeScope::Base,
            Some("snsapi_privateinfo") => AuthorizeScope::PrivateInfo,
            _ => return Err("scope".into()),
        };
        let application = parameters.get("agentid").map(|id| Application::find(id).ok_or("agentid")).transpose()?;
        if scope == AuthorizeScope::PrivateInfo && application.is_none() {
            return Err("agentid".into());
        }
        Ok(Self { callback, application, scope })
    }

    /// The application that needs this person's consent, if it has none yet.
    fn needs_consent(&self, state: &PlatformState, person: &EffectiveMember) -> Option<&'static Application> {
        let application = self.application.filter(|_| self.scope == AuthorizeScope::PrivateInfo)?;
        let has_consent = state.codes.has_consent(person.member, application, state.now());
        (!has_consent && state.switches.can_share_private_fields(application, person)).then_some(application)
    }

    /// Issues a code for this person and redirects with it.
    fn grant(&self, state: &mut PlatformState, person: &EffectiveMember) -> Response {
        if state.switches.deny_at_scan {
            return self.callback.redirect(&state.switches, None);
        }
        let now = state.now();
        if let Some(application) = self.needs_consent(state, person) {
            state.codes.record_consent(person.member, application, now);
        }
        let grant = CodeGrant {
            member: person.member,
            application: self.application,
            domain: self.callback.domain(),
            scope: self.scope,
        };
        let code = state.codes.issue(grant, state.switches.code_lifetime, now);
        self.callback.redirect(&state.switches, Some(&code))
    }
}

/// `GET /connect/oauth2/authorize`
pub async fn page(State(state): State<SharedState>, headers: HeaderMap, parameters: Parameters) -> Response {
    let user_agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut state = state.lock();
    if state.switches.client_only && !is_wecom_client(user_agent) {
        return pages::notice(PlatformNotice::ClientOnly);
    }
    respond(&mut state, &parameters).unwrap_or_else(LinkFault::response)
}

/// WeCom's clients send both names, the consumer messenger only the second.
fn is_wecom_client(user_agent: &str) -> bool {
    let user_agent = user_agent.to_ascii_lowercase();
    user_agent.contains("wxwork") || user_agent.contains("micromessenger")
}

fn respond(state: &mut PlatformState, parameters: &Parameters) -> Result<Response, LinkFault> {
    let request = AuthorizeParameters::read(parameters)?;
    if !state.switches.any_application_trusts(&request.callback.domain()) {
        return Err(LinkFault::UntrustedDomain(parameters.get("redirect_uri").unwrap_or_default().to_owned()));
    }
    if parameters.get(AS) == Some(DENY) {
        return Ok(request.callback.redirect(&state.switches, None));
    }
    if let Some(text) = parameters.get(AS) {
        let person = state.switches.find_member(text).ok_or(AS)?;
        return Ok(request.grant(state, &person));
    }
    let deny = parameters.link(AS, DENY, &[PICK]);
    let domain = request.callback.domain();
    if let Some(text) = parameters.get(PICK) {
        let person = state.switches.find_member(text).ok_or(PICK)?;
        if request.needs_consent(state, &person).is_none() {
            return Ok(request.grant(state, &person));
        }
        let allow = parameters.link(AS, person.member.userid, &[PICK]);
        return Ok(pages::consent(person.member.name, &domain, &allow, &deny));
    }
    let parameter = match request.scope {
        AuthorizeScope::Base => AS,
        AuthorizeScope::PrivateInfo => PICK,
    };
    let link = |person: &EffectiveMember| parameters.link(parameter, person.member.userid, &[]);
    Ok(pages::choose(&state.switches, &domain, link, &deny))
}

/// `GET /wwopen/uriconfirm`: the error page for an untrusted `redirect_uri`.
pub async fn untrusted_domain(parameters: Parameters) -> Response {
    pages::notice(PlatformNotice::UntrustedDomain(parameters.get("uri").unwrap_or_default()))
}
