//! The authorize page: who scans? On the real platform the phone knows; here a person picks.

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use url::Url;
use url::form_urlencoded::Serializer;

use super::ledger::App;
use super::members::{self, CORP_ID, Member, MemberKind};
use super::query::Parameters;
use super::{APPS, Shared, path};

const PAGE: &str = include_str!("authorize.html");
const FAULT_PAGE: &str = include_str!("fault.html");

/// No script at all; the style is the page's own.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'";

/// The longest `state` that the platform carries.
const LONGEST_STATE: usize = 128;

/// The answer to `as` that refuses.
const DENY: &str = "deny";

/// What the application asked for, checked as the platform checks it.
struct Request {
    redirect_uri: Url,
    state: String,
    app: Option<&'static App>,
}

impl Request {
    fn read(parameters: &Parameters) -> Result<Self, &'static str> {
        if parameters.get("appid") != Some(CORP_ID) {
            return Err("appid");
        }
        let redirect_uri = parameters.get("redirect_uri").and_then(|text| Url::parse(text).ok());
        let redirect_uri = redirect_uri.filter(|url| matches!(url.scheme(), "http" | "https")).ok_or("redirect_uri")?;
        if parameters.get("response_type") != Some("code") {
            return Err("response_type");
        }
        if parameters.get("scope") != Some("snsapi_base") {
            return Err("scope");
        }
        let state = parameters.get("state").unwrap_or_default();
        if state.len() > LONGEST_STATE {
            return Err("state");
        }
        let app = match parameters.get("agentid") {
            None => None,
            Some(id) => Some(APPS.iter().find(|app| app.agent_id == id).ok_or("agentid")?),
        };
        Ok(Self { redirect_uri, state: state.to_owned(), app })
    }

    /// Back to the application: with a code, or after a refusal with the state alone.
    fn back(self, code: Option<&str>) -> Result<Response, &'static str> {
        let mut target = self.redirect_uri;
        {
            // Appends to the query that is there already and keeps it as it is.
            let mut query = target.query_pairs_mut();
            if let Some(code) = code {
                query.append_pair("code", code);
            }
            query.append_pair("state", &self.state);
        }
        let target = HeaderValue::try_from(String::from(target)).map_err(|_| "redirect_uri")?;
        Ok((StatusCode::FOUND, [(header::LOCATION, target)]).into_response())
    }
}

/// `GET /connect/oauth2/authorize`
pub async fn page(State(shared): State<Shared>, parameters: Parameters) -> Response {
    shared.ledger().count(path::AUTHORIZE);
    let mut response = answer(&shared, &parameters).unwrap_or_else(|parameter| {
        let page = FAULT_PAGE.replace("{{parameter}}", &escape(parameter));
        (StatusCode::BAD_REQUEST, Html(page)).into_response()
    });
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

/// The page or the redirect; otherwise the parameter that is wrong.
fn answer(shared: &Shared, parameters: &Parameters) -> Result<Response, &'static str> {
    let request = Request::read(parameters)?;
    match parameters.get("as") {
        None => Ok(Html(choices(&request, parameters)).into_response()),
        Some(DENY) => request.back(None),
        Some(somebody) => {
            let member = members::find(somebody).ok_or("as")?;
            let code = shared.ledger().give_code(member, request.app);
            request.back(Some(&code))
        }
    }
}

fn choices(request: &Request, parameters: &Parameters) -> String {
    let people: String = members::members().iter().map(|member| card(member, parameters)).collect();
    // Links are percent-encoded and hold no braces; the host goes in last, so that nothing in it is
    // taken for a placeholder.
    PAGE.replace("{{people}}", &people)
        .replace("{{deny}}", &escape(&link(parameters, DENY)))
        .replace("{{target}}", &escape(request.redirect_uri.host_str().unwrap_or_default()))
}

fn card(member: &Member, parameters: &Parameters) -> String {
    let identifier = member.identifier();
    let note = match member.kind {
        MemberKind::Active => "",
        MemberKind::Disabled => "<em>disabled · 已禁用</em>",
        MemberKind::Linked { .. } => "<em>connected corporation · 互联企业</em>",
    };
    let initial: String = member.name.chars().take(1).collect();
    format!(
        "<li><a href=\"{href}\"><b aria-hidden=\"true\">{initial}</b><span><strong>{name}</strong>\
         <small>{identifier} · {department}</small>{note}</span></a></li>\n",
        href = escape(&link(parameters, &identifier)),
        initial = escape(&initial),
        name = escape(member.name),
        identifier = escape(&identifier),
        department = escape(member.department),
    )
}

/// This page's own address with an answer to who scans.
fn link(parameters: &Parameters, answer: &str) -> String {
    let kept = parameters.pairs().iter().filter(|(name, _)| name != "as");
    let query = Serializer::new(String::new()).extend_pairs(kept).append_pair("as", answer).finish();
    format!("?{query}")
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}
