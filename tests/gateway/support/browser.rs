//! Chromium driven over WebDriver, with its own process and profile.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use fantoccini::wd::{Capabilities, WebDriverCompatibleCommand, WindowHandle};
use fantoccini::{Client as Driver, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use url::Url;

use super::eventually;

/// The emulated device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FormFactor {
    Desktop,
    Phone,
}

/// The settings of a browser.
#[derive(Debug, Clone, Copy)]
pub struct BrowserProfile {
    pub form_factor: FormFactor,
    /// `en` or `zh-CN`.
    pub language: &'static str,
    /// Whether the page gets `prefers-color-scheme: dark`.
    pub dark: bool,
}

/// A desktop browser in English, light mode.
pub const DESKTOP: BrowserProfile = BrowserProfile { form_factor: FormFactor::Desktop, language: "en", dark: false };

/// A phone browser in English, light mode.
pub const PHONE: BrowserProfile = BrowserProfile { form_factor: FormFactor::Phone, language: "en", dark: false };

/// A browser. Quits on drop; a failed test leaves a screenshot.
pub struct Browser {
    driver: Driver,
    process: Child,
    port: u16,
    session: String,
    name: &'static str,
}

/// A Chromium-specific WebDriver command.
#[derive(Debug)]
struct ChromiumCommand {
    path: &'static str,
    body: Value,
}

impl WebDriverCompatibleCommand for ChromiumCommand {
    fn endpoint(&self, base: &Url, session: Option<&str>) -> Result<Url, url::ParseError> {
        base.join(&format!("session/{}/{}", session.unwrap_or_default(), self.path))
    }

    fn method_and_body(&self, _: &Url) -> (http::Method, Option<String>) {
        (http::Method::POST, Some(self.body.to_string()))
    }
}

impl Browser {
    /// Starts a browser; the screenshot is named after `name`.
    pub async fn start(name: &'static str, profile: BrowserProfile) -> Browser {
        let (process, port) = start_driver();
        let driver = ClientBuilder::new(HttpConnector::new())
            .capabilities(capabilities(profile))
            .connect(&format!("http://127.0.0.1:{port}"))
            .await
            .expect("a browser");
        let session = driver.session_id().await.expect("a session").expect("a session");
        Browser { driver, process, port, session, name }
    }

    /// Opens a URL.
    pub async fn open(&self, url: &str) {
        self.driver.goto(url).await.unwrap_or_else(|error| panic!("{} cannot open {url}: {error}", self.name));
    }

    /// The current URL.
    pub async fn url(&self) -> String {
        self.driver.current_url().await.expect("an address").to_string()
    }

    /// Waits for a URL with this prefix.
    pub async fn wait_for_url(&self, start: &str) {
        eventually(&format!("{} to arrive at {start}", self.name), || async {
            self.url().await.starts_with(start).then_some(())
        })
        .await;
    }

    /// Waits for an element and clicks it.
    pub async fn click(&self, selector: &str) {
        eventually(&format!("{} to click {selector}", self.name), || async {
            let element = self.driver.find(Locator::Css(selector)).await.ok()?;
            // A covered, hidden or moving element cannot be clicked yet.
            element.click().await.ok()
        })
        .await;
    }

    /// Waits for a field and types into it.
    pub async fn type_text(&self, selector: &str, text: &str) {
        eventually(&format!("{} to type into {selector}", self.name), || async {
            self.driver.find(Locator::Css(selector)).await.ok()?.send_keys(text).await.ok()
        })
        .await;
    }

    /// Sends a key to the focused element.
    pub async fn press_key(&self, key: char) {
        let focus = self.driver.active_element().await.expect("a focus");
        focus.send_keys(&key.to_string()).await.expect("a key");
    }

    /// The visible text of an element; empty if it is missing or hidden.
    pub async fn text(&self, selector: &str) -> String {
        match self.driver.find(Locator::Css(selector)).await {
            Ok(element) => element.text().await.unwrap_or_default(),
            Err(_) => String::new(),
        }
    }

    /// Waits until the text of an element contains `part`.
    pub async fn wait_for_text(&self, selector: &str, part: &str) -> String {
        let mut last = String::new();
        let start = std::time::Instant::now();
        while start.elapsed() < super::TEST_TIMEOUT {
            last = self.text(selector).await;
            if last.contains(part) {
                return last;
            }
        }
        panic!("{}: {selector} shows {last:?} instead of {part:?} at {}", self.name, self.url().await);
    }

    /// Waits until a JavaScript expression is neither null nor false, and returns its value.
    pub async fn wait_for_value(&self, what: &str, expression: &str) -> Value {
        eventually(&format!("{}: {what}", self.name), || async {
            let value = self.evaluate(expression).await;
            (!matches!(value, Value::Null | Value::Bool(false))).then_some(value)
        })
        .await
    }

    /// Evaluates a JavaScript expression.
    pub async fn evaluate(&self, expression: &str) -> Value {
        self.driver.execute(&format!("return ({expression})"), Vec::new()).await.unwrap_or(Value::Null)
    }

    /// Decodes the QR code on the page from its pixels.
    pub async fn qr_code(&self, selector: &str) -> String {
        // The image has another URL until the code is loaded.
        let drawn = "source?.startsWith('data:image/png') ? source : null";
        let find = format!("(source => {drawn})(document.querySelector('{selector}')?.src)");
        let source = self.wait_for_value("a QR code", &find).await;
        let data = source.as_str().and_then(|text| text.strip_prefix("data:image/png;base64,")).expect("a picture");
        use base64::Engine;
        let bytes = base64::engine::general_purpose::STANDARD.decode(data).expect("base64");
        decode_qr_code(&bytes)
    }

    /// Opens a tab and switches to it.
    pub async fn new_tab(&self) -> WindowHandle {
        let tab = self.driver.new_window(true).await.expect("a tab").handle;
        self.switch_to_tab(&tab).await;
        tab
    }

    pub async fn switch_to_tab(&self, tab: &WindowHandle) {
        self.driver.switch_to_window(tab.clone()).await.expect("the tab");
    }

    /// The current tab.
    pub async fn tab(&self) -> WindowHandle {
        self.driver.window().await.expect("a tab")
    }

    pub async fn tabs(&self) -> Vec<WindowHandle> {
        self.driver.windows().await.expect("tabs")
    }

    /// Switches the emulated network off or on.
    pub async fn set_offline(&self, offline: bool) {
        let conditions =
            json!({ "offline": offline, "latency": 0, "download_throughput": -1, "upload_throughput": -1 });
        let command =
            ChromiumCommand { path: "chromium/network_conditions", body: json!({ "network_conditions": conditions }) };
        self.driver.issue_cmd(command).await.expect("network conditions");
    }

    /// Takes the console's errors: failed scripts, content blocked by the policy.
    pub async fn console_errors(&self) -> Vec<String> {
        let command = ChromiumCommand { path: "se/log", body: json!({ "type": "browser" }) };
        let entries = self.driver.issue_cmd(command).await.expect("the console");
        let entries = entries.as_array().cloned().unwrap_or_default();
        entries.iter().filter(|entry| entry["level"] == "SEVERE").map(|entry| entry["message"].to_string()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(picture) = take_screenshot(self.port, &self.session)
        {
            let test = std::thread::current().name().unwrap_or("test").replace("::", "-");
            let file = screenshot_folder().join(format!("{test}-{}.png", self.name));
            if std::fs::write(&file, picture).is_ok() {
                eprintln!("--- screenshot of {}: {} ---", self.name, file.display());
            }
        }
        // Deleting the session quits the browser; killing the driver first would leave it running.
        let _ = blocking_request(self.port, "DELETE", &format!("/session/{}", self.session));
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Starts chromedriver on a free port. It needs the same port on IPv4 and IPv6 and exits if one is taken, so it is
/// retried.
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

/// The folder of the screenshots, in the target directory.
fn screenshot_folder() -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("screenshots");
    std::fs::create_dir_all(&folder).expect("a folder for pictures");
    folder
}

fn take_screenshot(port: u16, session: &str) -> Option<Vec<u8>> {
    use base64::Engine;
    let response = blocking_request(port, "GET", &format!("/session/{session}/screenshot"))?;
    let body: Value = serde_json::from_str(&response).ok()?;
    base64::engine::general_purpose::STANDARD.decode(body["value"].as_str()?).ok()
}

/// Sends a blocking request: while a test panics, no async runtime is available.
fn blocking_request(port: u16, method: &str, path: &str) -> Option<String> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(super::TEST_TIMEOUT)).ok()?;
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n").ok()?;
    // chromedriver ignores `Connection: close`, so the body is read by its length.
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

fn capabilities(profile: BrowserProfile) -> Capabilities {
    let mut args = vec![
        "--headless=new".to_owned(),
        // Tests may run as root and in containers with a small /dev/shm.
        "--no-sandbox".to_owned(),
        "--disable-dev-shm-usage".to_owned(),
        "--disable-gpu".to_owned(),
        "--disable-background-networking".to_owned(),
        "--no-first-run".to_owned(),
        format!("--lang={}", profile.language),
        "--window-size=1280,900".to_owned(),
    ];
    if profile.dark {
        args.push("--blink-settings=preferredColorScheme=0".to_owned());
    }
    let mut options = json!({
        "args": args,
        "prefs": { "intl.accept_languages": profile.language },
    });
    if profile.form_factor == FormFactor::Phone {
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

/// Decodes a QR code from a PNG.
pub fn decode_qr_code(bytes: &[u8]) -> String {
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
