//! A member's phone: opens the platform's authorize page, the callback and the confirm page.

use url::Url;

use super::{Client, Response};

/// A browser that is signed in to the simulated platform.
pub struct Phone {
    client: Client,
    userid: String,
}

impl Phone {
    /// The phone of this member; the member `deny` refuses to authorize.
    pub fn new(client: Client, userid: &str) -> Phone {
        Phone { client, userid: userid.to_owned() }
    }

    /// The phone's HTTP client, with its cookies.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Opens an authorize URL and returns the URL of the gateway's callback with the platform's code and state.
    pub async fn authorize(&self, authorize_url: &str) -> String {
        let back = self.returned_to(authorize_url).await;
        let query = back.split_once('?').map_or("", |(_, query)| query);
        format!("{}/api/auth/oauth2/callback?{query}", self.client.origin())
    }

    /// Opens an authorize URL and returns the platform's redirect.
    pub async fn returned_to(&self, authorize_url: &str) -> String {
        let page = authorize_url.split('#').next().unwrap_or_default();
        let member: String = url::form_urlencoded::byte_serialize(self.userid.as_bytes()).collect();
        // The platform is another host and gets none of the gateway's cookies.
        let platform = Client::new(self.client.address());
        platform.get(&format!("{page}&as={member}")).await.expect_status(302).location()
    }

    /// Opens a QR code's URL and returns the callback's response.
    pub async fn scan(&self, qrcode_url: &str) -> Response {
        let callback = self.authorize(qrcode_url).await;
        self.client.get(&callback).await
    }

    /// Scans and opens the confirm page.
    pub async fn scan_to_page(&self, qrcode_url: &str) -> Page {
        let response = self.scan(qrcode_url).await;
        self.page(&response.location()).await
    }

    /// Scans and confirms.
    pub async fn scan_and_confirm(&self, qrcode_url: &str) -> Response {
        let page = self.scan_to_page(qrcode_url).await;
        self.tap(&page, "confirm").await
    }

    /// Opens a page of the gateway.
    pub async fn page(&self, address: &str) -> Page {
        let address =
            Url::parse(&self.client.origin()).and_then(|base| base.join(address)).expect("an address").to_string();
        let address = address.split('#').next().unwrap_or_default().to_owned();
        let response = self.client.get(&address).await.expect_status(200);
        let kind = response.header("content-type").unwrap_or_default().to_owned();
        assert!(kind.starts_with("text/html"), "no page: {}", response.describe());
        // The template engine escapes slashes in values as well.
        Page { html: response.text().replace("&#x2f;", "/"), address, response }
    }

    /// Submits the form of the button with this value, with its hidden fields and an Origin header.
    pub async fn tap(&self, page: &Page, value: &str) -> Response {
        let form = page.form(value);
        self.submit(page, &form).await
    }

    pub async fn submit(&self, page: &Page, form: &Form) -> Response {
        let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(&form.fields).finish();
        let target = Url::parse(&page.address).and_then(|base| base.join(&form.action)).expect("a form's action");
        let origin = self.client.origin();
        let headers = [("Content-Type", "application/x-www-form-urlencoded"), ("Origin", origin.as_str())];
        self.client.send("POST", target.as_str(), &headers, body.as_bytes()).await
    }

    /// Runs the OAuth2 sign-in and returns the callback's response.
    pub async fn oauth2(&self, redirect_uri: &str) -> Response {
        let authorize_url = self.authorize_url(redirect_uri).await;
        let callback = self.authorize(&authorize_url).await;
        self.client.get(&callback).await
    }

    /// Requests the authorize URL and keeps the flow cookie.
    pub async fn authorize_url(&self, redirect_uri: &str) -> String {
        let query: String = url::form_urlencoded::byte_serialize(redirect_uri.as_bytes()).collect();
        let response = self.client.get(&format!("/api/auth/oauth2/url?redirect_uri={query}")).await;
        response.expect_code(0).data()["authorize_url"].as_str().expect("a URL").to_owned()
    }
}

/// An HTML page of the gateway.
pub struct Page {
    pub html: String,
    pub address: String,
    pub response: Response,
}

/// An HTML form to submit.
#[derive(Debug, Clone)]
pub struct Form {
    pub action: String,
    /// The hidden fields and the pressed button.
    pub fields: Vec<(String, String)>,
}

impl Page {
    /// The POST form whose button is `answer` with this value.
    #[track_caller]
    pub fn form(&self, value: &str) -> Form {
        for piece in self.html.split("<form").skip(1) {
            let form = piece.split("</form>").next().unwrap_or_default();
            let (start, inside) = form.split_once('>').unwrap_or((form, ""));
            let tags = inside.split('<').filter(|tag| tag.starts_with("input") || tag.starts_with("button"));
            let tags: Vec<Attributes> =
                tags.map(|tag| Attributes::of(tag.split('>').next().unwrap_or_default())).collect();
            let is_button = |tag: &&Attributes| tag.get("name").is_some_and(|name| name == "answer");
            let Some(button) = tags.iter().filter(is_button).find(|tag| tag.get("value").as_deref() == Some(value))
            else {
                continue;
            };
            let start = Attributes::of(start);
            let method = start.get("method").unwrap_or_default();
            assert!(method.eq_ignore_ascii_case("post"), "the form must use POST: {}", self.html);
            let hidden = tags.iter().filter(|tag| tag.get("type").as_deref() == Some("hidden"));
            let fields = hidden
                .filter(|tag| tag.get("name").as_deref() != Some("answer"))
                .chain([button])
                .map(|tag| (tag.get("name").expect("a name"), tag.get("value").unwrap_or_default()))
                .collect();
            return Form { action: start.get("action").unwrap_or_default(), fields };
        }
        panic!("no form with the button answer={value} in:\n{}", self.html);
    }

    /// The visible text, without tags, scripts and styles.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut rest = self.html.as_str();
        while let Some((before, tag)) = rest.split_once('<') {
            text.push_str(before);
            text.push(' ');
            let end = ["script", "style"].iter().find(|name| tag.starts_with(**name)).map(|name| format!("</{name}>"));
            rest = match end {
                Some(end) => tag.split_once(&end).map_or("", |(_, after)| after),
                None => tag.split_once('>').map_or("", |(_, after)| after),
            };
        }
        text.push_str(rest);
        unescape(&text)
    }
}

/// The attributes of a tag.
struct Attributes(Vec<(String, String)>);

impl Attributes {
    fn of(tag: &str) -> Attributes {
        let mut found = Vec::new();
        let mut rest = tag;
        while let Some(position) = rest.find('=') {
            let name = rest[..position].rsplit(char::is_whitespace).next().unwrap_or_default().to_ascii_lowercase();
            let after = rest[position + 1..].trim_start();
            let (value, tail) = match after.chars().next() {
                Some(quote @ ('"' | '\'')) => after[1..].split_once(quote).unwrap_or((&after[1..], "")),
                _ => after.split_once(char::is_whitespace).unwrap_or((after, "")),
            };
            found.push((name, unescape(value)));
            rest = tail;
        }
        Attributes(found)
    }

    fn get(&self, name: &str) -> Option<String> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone())
    }
}

/// Decodes common HTML entities.
fn unescape(text: &str) -> String {
    let mut plain = text.to_owned();
    for (entity, character) in [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&#34;", "\""),
        ("&#39;", "'"),
        ("&#x27;", "'"),
        ("&apos;", "'"),
        ("&#x2F;", "/"),
        ("&#47;", "/"),
        ("&nbsp;", " "),
        ("&amp;", "&"),
    ] {
        plain = plain.replace(entity, character);
    }
    plain
}

/// A parameter of a URL's fragment.
pub fn fragment_parameter(address: &str, name: &str) -> Option<String> {
    let fragment = address.split_once('#')?.1;
    url::form_urlencoded::parse(fragment.as_bytes()).find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

/// A parameter of a URL's query.
pub fn query_parameter(address: &str, name: &str) -> Option<String> {
    let url = Url::parse(address).ok()?;
    url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}
