//! A real browser: Chromium, driven over WebDriver, one process and one profile per person.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use fantoccini::wd::{Capabilities, WebDriverCompatibleCommand, WindowHandle};
use fantoccini::{Client as Driver, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use url::Url;

use super::eventually;

/// What the browser pretends to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Screen {
    /// A desktop's.
    Desktop,
    /// A phone's.
    Phone,
}

/// How a browser is set up.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// Desktop or phone.
    pub screen: Screen,
    /// `en` or `zh-CN`.
    pub language: &'static str,
    /// Whether the person likes it dark.
    pub dark: bool,
}

/// A desktop in English, by day.
pub const DESKTOP: Look = Look { screen: Screen::Desktop, language: "en", dark: false };

/// A phone in English, by day.
pub const PHONE: Look = Look { screen: Screen::Phone, language: "en", dark: false };

/// One person's browser. Ends when it is dropped; when the test failed, what it showed is kept as a picture.
pub struct Browser {
    driver: Driver,
    process: Child,
    port: u16,
    session: String,
    name: &'static str,
}

/// A command of Chromium's own driver.
#[derive(Debug)]
struct Own {
    path: &'static str,
    body: Value,
}

impl WebDriverCompatibleCommand for Own {
    fn endpoint(&self, base: &Url, session: Option<&str>) -> Result<Url, url::ParseError> {
        base.join(&format!("session/{}/{}", session.unwrap_or_default(), self.path))
    }

    fn method_and_body(&self, _: &Url) -> (http::Method, Option<String>) {
        (http::Method::POST, Some(self.body.to_string()))
    }
}

impl Browser {
    /// Starts one for somebody; the name is for the picture.
    pub async fn start(name: &'static str, look: Look) -> Browser {
        let (process, port) = start_driver();
        let driver = ClientBuilder::new(HttpConnector::new())
            .capabilities(capabilities(look))
            .connect(&format!("http://127.0.0.1:{port}"))
            .await
            .expect("a browser");
        let session = driver.session_id().await.expect("a session").expect("a session");
        Browser { driver, process, port, session, name }
    }

    /// Opens an address.
    pub async fn open(&self, url: &str) {
        self.driver.goto(url).await.unwrap_or_else(|error| panic!("{} cannot open {url}: {error}", self.name));
    }

    /// Where it is.
    pub async fn url(&self) -> String {
        self.driver.current_url().await.expect("an address").to_string()
    }

    /// Waits until it is at an address that begins so.
    pub async fn arrives_at(&self, start: &str) {
        eventually(&format!("{}'s way to {start}", self.name), || async {
            self.url().await.starts_with(start).then_some(())
        })
        .await;
    }

    /// Waits for something and presses it.
    pub async fn press(&self, selector: &str) {
        eventually(&format!("{}'s press on {selector}", self.name), || async {
            let element = self.driver.find(Locator::Css(selector)).await.ok()?;
            // What is covered, hidden or still moving cannot be pressed yet.
            element.click().await.ok()
        })
        .await;
    }

    /// Waits for a field and types into it.
    pub async fn types(&self, selector: &str, text: &str) {
        eventually(&format!("{}'s typing into {selector}", self.name), || async {
            self.driver.find(Locator::Css(selector)).await.ok()?.send_keys(text).await.ok()
        })
        .await;
    }

    /// Presses a key of the keyboard where the focus is.
    pub async fn key(&self, key: char) {
        let focus = self.driver.active_element().await.expect("a focus");
        focus.send_keys(&key.to_string()).await.expect("a key");
    }

    /// What an element shows; nothing where it is not there or hidden.
    pub async fn text(&self, selector: &str) -> String {
        match self.driver.find(Locator::Css(selector)).await {
            Ok(element) => element.text().await.unwrap_or_default(),
            Err(_) => String::new(),
        }
    }

    /// Waits until an element shows a text that contains this.
    pub async fn shows(&self, selector: &str, part: &str) -> String {
        let mut last = String::new();
        let start = std::time::Instant::now();
        while start.elapsed() < super::PATIENCE {
            last = self.text(selector).await;
            if last.contains(part) {
                return last;
            }
        }
        panic!("{}: {selector} does not show {part:?} but {last:?} at {}", self.name, self.url().await);
    }

    /// Waits until a script's expression is what people would call true, and gives it back.
    pub async fn finds(&self, what: &str, expression: &str) -> Value {
        eventually(&format!("{}: {what}", self.name), || async {
            let value = self.value(expression).await;
            (!matches!(value, Value::Null | Value::Bool(false))).then_some(value)
        })
        .await
    }

    /// The value of a script's expression now.
    pub async fn value(&self, expression: &str) -> Value {
        self.driver.execute(&format!("return ({expression})"), Vec::new()).await.unwrap_or(Value::Null)
    }

    /// What the QR code on the page says, read from its pixels as a phone would.
    pub async fn qr_code(&self, selector: &str) -> String {
        // Before its code has come the picture has an address of another kind.
        let drawn = "source?.startsWith('data:image/png') ? source : null";
        let find = format!("(source => {drawn})(document.querySelector('{selector}')?.src)");
        let source = self.finds("a QR code", &find).await;
        let data = source.as_str().and_then(|text| text.strip_prefix("data:image/png;base64,")).expect("a picture");
        use base64::Engine;
        let bytes = base64::engine::general_purpose::STANDARD.decode(data).expect("base64");
        read_code(&bytes)
    }

    /// Opens another tab and goes there.
    pub async fn new_tab(&self) -> WindowHandle {
        let tab = self.driver.new_window(true).await.expect("a tab").handle;
        self.to_tab(&tab).await;
        tab
    }

    /// Goes to a tab.
    pub async fn to_tab(&self, tab: &WindowHandle) {
        self.driver.switch_to_window(tab.clone()).await.expect("the tab");
    }

    /// The tab that is shown.
    pub async fn tab(&self) -> WindowHandle {
        self.driver.window().await.expect("a tab")
    }

    /// All tabs.
    pub async fn tabs(&self) -> Vec<WindowHandle> {
        self.driver.windows().await.expect("tabs")
    }

    /// Cuts it off from the network, or lets it in again.
    pub async fn offline(&self, offline: bool) {
        let conditions =
            json!({ "offline": offline, "latency": 0, "download_throughput": -1, "upload_throughput": -1 });
        let command = Own { path: "chromium/network_conditions", body: json!({ "network_conditions": conditions }) };
        self.driver.issue_cmd(command).await.expect("network conditions");
    }

    /// What the console has complained about since the last look: scripts that failed, things the policy refused.
    pub async fn complaints(&self) -> Vec<String> {
        let command = Own { path: "se/log", body: json!({ "type": "browser" }) };
        let entries = self.driver.issue_cmd(command).await.expect("the console");
        let entries = entries.as_array().cloned().unwrap_or_default();
        entries.iter().filter(|entry| entry["level"] == "SEVERE").map(|entry| entry["message"].to_string()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(picture) = last_picture(self.port, &self.session)
        {
            let test = std::thread::current().name().unwrap_or("test").replace("::", "-");
            let file = pictures().join(format!("{test}-{}.png", self.name));
            if std::fs::write(&file, picture).is_ok() {
                eprintln!("--- what {} saw: {} ---", self.name, file.display());
            }
        }
        // The driver ends its browser with the session; killing it first would leave the browser behind.
        let _ = plain_request(self.port, "DELETE", &format!("/session/{}", self.session));
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A driver on a free port. It wants the same port on IPv4 and IPv6, which the system does not always have to give:
/// then it ends, and is started again.
fn start_driver() -> (Child, u16) {
    for _ in 0..10 {
        let mut process = Command::new("chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver (Debian's package chromium-driver)");
        let mut lines = BufReader::new(process.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
        let Some(ready) = lines.find(|line| line.contains("started successfully on port")) else {
            process.wait().expect("its end");
            continue;
        };
        let port = ready.trim_end_matches('.').rsplit(' ').next().and_then(|port| port.parse().ok()).expect("a port");
        // Reads on, so that the driver never waits for a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        return (process, port);
    }
    panic!("chromedriver does not start");
}

/// Where pictures are kept: beside what was built.
fn pictures() -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("screenshots");
    std::fs::create_dir_all(&folder).expect("a folder for pictures");
    folder
}

fn last_picture(port: u16, session: &str) -> Option<Vec<u8>> {
    use base64::Engine;
    let answer = plain_request(port, "GET", &format!("/session/{session}/screenshot"))?;
    let body: Value = serde_json::from_str(&answer).ok()?;
    base64::engine::general_purpose::STANDARD.decode(body["value"].as_str()?).ok()
}

/// A request without a runtime: a failed test has none left.
fn plain_request(port: u16, method: &str, path: &str) -> Option<String> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(super::PATIENCE)).ok()?;
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n").ok()?;
    // The driver keeps the connection open whatever it is told, so the length counts.
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    let mut line = String::new();
    while reader.read_line(&mut line).ok()? > 2 {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    String::from_utf8(body).ok()
}

fn capabilities(look: Look) -> Capabilities {
    let mut args = vec![
        "--headless=new".to_owned(),
        // The suite may run as root, and in containers that have no room in /dev/shm.
        "--no-sandbox".to_owned(),
        "--disable-dev-shm-usage".to_owned(),
        "--disable-gpu".to_owned(),
        "--disable-background-networking".to_owned(),
        "--no-first-run".to_owned(),
        format!("--lang={}", look.language),
        "--window-size=1280,900".to_owned(),
    ];
    if look.dark {
        args.push("--blink-settings=preferredColorScheme=0".to_owned());
    }
    let mut options = json!({
        "args": args,
        "prefs": { "intl.accept_languages": look.language },
    });
    if look.screen == Screen::Phone {
        let metrics = json!({ "width": 390, "height": 844, "pixelRatio": 2.0, "touch": true });
        let agent = "Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36 Chrome/120.0 Mobile Safari/537.36";
        options["mobileEmulation"] = json!({ "deviceMetrics": metrics, "userAgent": agent });
    }
    let capabilities = json!({
        "browserName": "chrome",
        "goog:chromeOptions": options,
        "goog:loggingPrefs": { "browser": "ALL" },
    });
    capabilities.as_object().expect("an object").clone()
}

/// Reads a QR code from a PNG.
pub fn read_code(bytes: &[u8]) -> String {
    let mut decoder = png::Decoder::new(std::io::Cursor::new(bytes));
    decoder.set_transformations(png::Transformations::EXPAND);
    let mut reader = decoder.read_info().expect("a PNG");
    let mut pixels = vec![0; reader.output_buffer_size().expect("a size")];
    let shape = reader.next_frame(&mut pixels).expect("a picture");
    let (width, height) = (shape.width as usize, shape.height as usize);
    let step = shape.line_size / width;
    let mut picture =
        rqrr::PreparedImage::prepare_from_greyscale(width, height, |x, y| pixels[y * shape.line_size + x * step]);
    let grids = picture.detect_grids();
    let (_, text) = grids.first().expect("a code in the picture").decode().expect("a readable code");
    text
}
