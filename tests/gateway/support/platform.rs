//! A member's phone: the platform's authorize page, our callback, our confirm page.

use url::Url;

use super::{Answer, Client};

/// A phone or browser that is signed in at the simulated platform.
pub struct Phone {
    client: Client,
    userid: String,
}

impl Phone {
    /// The phone of this member; `deny` is one who refuses.
    pub fn new(client: Client, userid: &str) -> Phone {
        Phone { client, userid: userid.to_owned() }
    }

    /// Its browser, with its cookies.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Opens an authorize URL at the platform: the address of our callback for what it answers. Where the
    /// platform returns to a client's page, that page hands code and state on to the callback.
    pub async fn authorize(&self, authorize_url: &str) -> String {
        let back = self.returned_to(authorize_url).await;
        let query = back.split_once('?').map_or("", |(_, query)| query);
        format!("http://{}/api/auth/oauth2/callback?{query}", self.client.address())
    }

    /// Opens an authorize URL at the platform: the address that it sends the member back to.
    pub async fn returned_to(&self, authorize_url: &str) -> String {
        let page = authorize_url.split('#').next().unwrap_or_default();
        let member: String = url::form_urlencoded::byte_serialize(self.userid.as_bytes()).collect();
        // The platform is another host: it sees none of our cookies.
        let platform = Client::new(self.client.address());
        platform.get(&format!("{page}&as={member}")).await.expect_status(302).location()
    }

    /// Opens a QR code's URL, through the platform, up to our callback's answer.
    pub async fn scan(&self, qrcode_url: &str) -> Answer {
        let callback = self.authorize(qrcode_url).await;
        self.client.get(&callback).await
    }

    /// Scans and follows to the confirm page.
    pub async fn scan_to_page(&self, qrcode_url: &str) -> Page {
        let answer = self.scan(qrcode_url).await;
        self.page(&answer.location()).await
    }

    /// Scans and taps Confirm.
    pub async fn scan_and_confirm(&self, qrcode_url: &str) -> Answer {
        let page = self.scan_to_page(qrcode_url).await;
        self.tap(&page, "confirm").await
    }

    /// Opens one of our pages.
    pub async fn page(&self, address: &str) -> Page {
        let address = Url::parse(&format!("http://{}/", self.client.address()))
            .and_then(|base| base.join(address))
            .expect("an address")
            .to_string();
        let address = address.split('#').next().unwrap_or_default().to_owned();
        let answer = self.client.get(&address).await.expect_status(200);
        let kind = answer.header("content-type").unwrap_or_default().to_owned();
        assert!(kind.starts_with("text/html"), "no page: {}", answer.describe());
        Page { html: answer.text(), address, answer }
    }

    /// Presses the button of this value as a browser does: one form, its hidden fields, its own origin.
    pub async fn tap(&self, page: &Page, value: &str) -> Answer {
        let form = page.form(value);
        self.submit(page, &form).await
    }

    /// Sends a form.
    pub async fn submit(&self, page: &Page, form: &Form) -> Answer {
        let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(&form.fields).finish();
        let target = Url::parse(&page.address).and_then(|base| base.join(&form.action)).expect("a form's action");
        let origin = format!("http://{}", self.client.address());
        let headers = [("Content-Type", "application/x-www-form-urlencoded"), ("Origin", origin.as_str())];
        self.client.send("POST", target.as_str(), &headers, body.as_bytes()).await
    }

    /// The whole redirect sign-in, up to our callback's answer.
    pub async fn oauth2(&self, redirect_uri: &str) -> Answer {
        let authorize_url = self.authorize_url(redirect_uri).await;
        let callback = self.authorize(&authorize_url).await;
        self.client.get(&callback).await
    }

    /// Asks for the authorize URL; the flow cookie stays in this phone's browser.
    pub async fn authorize_url(&self, redirect_uri: &str) -> String {
        let query: String = url::form_urlencoded::byte_serialize(redirect_uri.as_bytes()).collect();
        let answer = self.client.get(&format!("/api/auth/oauth2/url?redirect_uri={query}")).await;
        answer.expect_code(0).data()["authorize_url"].as_str().expect("a URL").to_owned()
    }
}

/// A page of ours.
pub struct Page {
    /// Its source.
    pub html: String,
    /// Where it is.
    pub address: String,
    /// The answer it came in.
    pub answer: Answer,
}

/// A form, ready to be sent.
#[derive(Debug, Clone)]
pub struct Form {
    /// Where to.
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
            assert!(method.eq_ignore_ascii_case("post"), "a form that changes something is a POST: {}", self.html);
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

    /// The text that people see: tags, scripts and styles removed, entities resolved.
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

/// The attributes of one tag.
struct Attributes(Vec<(String, String)>);

impl Attributes {
    fn of(tag: &str) -> Attributes {
        let mut found = Vec::new();
        let mut rest = tag;
        while let Some(place) = rest.find('=') {
            let name = rest[..place].rsplit(char::is_whitespace).next().unwrap_or_default().to_ascii_lowercase();
            let after = rest[place + 1..].trim_start();
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

/// Resolves the entities that escaping functions write.
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

/// A parameter of an address's fragment.
pub fn fragment_of(address: &str, name: &str) -> Option<String> {
    let fragment = address.split_once('#')?.1;
    url::form_urlencoded::parse(fragment.as_bytes()).find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

/// A parameter of an address's query.
pub fn query_of(address: &str, name: &str) -> Option<String> {
    let url = Url::parse(address).ok()?;
    url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}
