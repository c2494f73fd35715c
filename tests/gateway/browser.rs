//! The pages in a real browser, on a desktop and a phone, against `deskgate demo`.

use crate::support::*;

/// The demo: gateway, simulated platform and a small help desk.
struct Demo {
    desk: Gateway,
}

impl Demo {
    async fn start() -> Demo {
        Demo::with(&[]).await
    }

    async fn with(sets: &[&str]) -> Demo {
        let mut args = vec!["--listen", "127.0.0.1:0"];
        args.extend(sets.iter().flat_map(|set| ["--set", set]));
        Demo { desk: Gateway::try_demo(&args).await.expect("the demo") }
    }

    fn page(&self, client: &str) -> String {
        self.desk.client_url(client)
    }

    fn sign_in_page(&self, client: &str) -> String {
        format!("{}/api/auth/signin?client={client}", self.desk.public_url())
    }

    /// Signs an employee in by OAuth2 redirect.
    async fn sign_in(&self, browser: &Browser, client: &str, employee: &str) {
        browser.open(&self.sign_in_page(client)).await;
        self.redirect(browser, client, employee).await;
    }

    /// Follows the redirect from the sign-in page through the platform to the client's page.
    async fn redirect(&self, browser: &Browser, client: &str, employee: &str) {
        browser.click("#redirect").await;
        choose_member(browser, employee).await;
        browser.wait_for_url(&self.page(client)).await;
        browser.wait_for_text("#who", employee).await;
    }
}

/// Chooses a member on the simulated platform's page.
async fn choose_member(browser: &Browser, member: &str) {
    let encoded: String = url::form_urlencoded::byte_serialize(member.as_bytes()).collect();
    browser.click(&format!("a[href$=\"as={encoded}\"]")).await;
}

/// Fails if the console has an error: a failed script or a violated content security policy.
async fn expect_no_console_errors(browser: &Browser) {
    let console_errors = browser.console_errors().await;
    assert!(console_errors.is_empty(), "{console_errors:?}");
}

#[tokio::test]
async fn a_phone_signs_a_desktop_in_by_qr_code() {
    let demo = Demo::start().await;
    let (desktop, phone) = tokio::join!(Browser::start("desktop", DESKTOP), Browser::start("phone", PHONE));
    desktop.open(&demo.sign_in_page("itagent")).await;
    let code = desktop.qr_code("#code").await;
    desktop.wait_for_text("#status", "Waiting").await;
    let number = desktop.text("#number").await;
    assert!(number.len() == 2 && number.bytes().all(|digit| digit.is_ascii_digit()), "{number}");

    let simulated_scan = desktop.evaluate("document.querySelector('#pretend').href").await;
    assert_eq!(simulated_scan, code.as_str(), "the link simulates the scan");

    phone.open(&code).await;
    choose_member(&phone, "a2001").await;
    phone.wait_for_text("h1", "Is this you").await;
    assert_eq!(phone.text(".number").await, number, "both screens show the same number");
    let facts = phone.text("main").await;
    assert!(facts.contains("Alice Chen") && facts.contains("Chrome") && facts.contains("127.0.0.1"), "{facts}");
    desktop.wait_for_text("#status", "onfirm on your phone").await;
    assert!(desktop.text("#scanner").await.contains("Alice Chen"));

    phone.click("button[value=confirm]").await;
    phone.wait_for_text("h1", "You are signed in").await;
    desktop.wait_for_url(&demo.page("itagent")).await;
    desktop.wait_for_text("#who", "a2001").await;
    assert!(!desktop.url().await.contains("token"), "the token does not stay in the address bar");
    expect_no_console_errors(&desktop).await;
    expect_no_console_errors(&phone).await;
}

#[tokio::test]
async fn cancelled_qr_code_can_be_renewed() {
    let demo = Demo::start().await;
    let (desktop, phone) = tokio::join!(Browser::start("desktop", DESKTOP), Browser::start("phone", PHONE));
    desktop.open(&demo.sign_in_page("h5")).await;
    let first = desktop.qr_code("#code").await;
    phone.open(&first).await;
    choose_member(&phone, "u1001").await;
    phone.click("button[value=cancel]").await;
    phone.wait_for_text("h1", "Cancelled").await;
    desktop.wait_for_text("#status", "cancelled on your phone").await;
    let expired = "document.querySelector('#signin').dataset.state === 'expired'";
    desktop.wait_for_value("the code has expired", expired).await;

    desktop.click("#renew").await;
    desktop.wait_for_text("#status", "Waiting").await;
    let second = desktop.qr_code("#code").await;
    assert_ne!(first, second);
    phone.open(&second).await;
    choose_member(&phone, "u1001").await;
    phone.click("button[value=confirm]").await;
    desktop.wait_for_url(&demo.page("h5")).await;
}

#[tokio::test]
async fn refused_scan_is_shown_on_the_waiting_desktop() {
    let demo = Demo::start().await;
    let chinese = BrowserProfile { language: "zh-CN", ..DESKTOP };
    let (desktop, phone) = tokio::join!(Browser::start("desktop", chinese), Browser::start("phone", PHONE));
    desktop.open(&demo.sign_in_page("h5")).await;
    phone.open(&desktop.qr_code("#code").await).await;
    choose_member(&phone, "x8001").await;
    desktop.wait_for_text("#status", "登录被拒绝").await;
    desktop.click("#renew").await;
    desktop.wait_for_text("#status", "等待扫码").await;
}

#[tokio::test]
async fn expired_qr_code_is_renewed_by_keyboard() {
    let demo = Demo::with(&["ticket.lifetime=4s", "ticket.longest_wait=1s"]).await;
    let desktop = Browser::start("desktop", DESKTOP).await;
    desktop.open(&demo.sign_in_page("h5")).await;
    let first = desktop.qr_code("#code").await;
    desktop.wait_for_text("#status", "has expired").await;
    desktop.wait_for_value("the button", "!document.querySelector('#renew').hidden").await;
    desktop.evaluate("document.querySelector('#renew').focus()").await;
    desktop.press_key('\u{e007}').await;
    eventually("another code", || async { (desktop.qr_code("#code").await != first).then_some(()) }).await;
    expect_no_console_errors(&desktop).await;
}

#[tokio::test]
async fn oauth2_redirect_signs_in_or_shows_the_refusal() {
    let demo = Demo::start().await;
    let desktop = Browser::start("desktop", DESKTOP).await;
    desktop.open(&demo.sign_in_page("itadmin")).await;
    desktop.click("#redirect").await;
    choose_member(&desktop, "deny").await;
    desktop.wait_for_url(&demo.sign_in_page("itadmin")).await;
    desktop.wait_for_text("#problem", "Access denied").await;
    sign_in_as_disabled_member(&desktop).await;
    desktop.wait_for_text("#problem", "Access denied").await;
    demo.redirect(&desktop, "itadmin", "m5001").await;
    assert!(!desktop.url().await.contains("token") && !desktop.url().await.contains("code="));
    expect_no_console_errors(&desktop).await;
}

/// Tries to sign in as a member whom the platform has disabled.
async fn sign_in_as_disabled_member(browser: &Browser) {
    browser.click("#redirect").await;
    choose_member(browser, "x8001").await;
}

#[tokio::test]
async fn ten_tabs_of_one_browser_all_sign_in() {
    let demo = Demo::start().await;
    let desktop = Browser::start("desktop", DESKTOP).await;
    let employees = ["u1001", "a2001", "m5001", "s3001", "c4001"];
    let mut tabs = Vec::new();
    for number in 0..10 {
        let tab = desktop.new_tab().await;
        desktop.open(&demo.sign_in_page("h5")).await;
        desktop.click("#redirect").await;
        desktop.wait_for_value("the platform", "location.pathname.includes('/connect/')").await;
        tabs.push((tab, employees[number % employees.len()]));
    }
    for (tab, employee) in &tabs {
        desktop.switch_to_tab(tab).await;
        choose_member(&desktop, employee).await;
    }
    for (tab, employee) in &tabs {
        desktop.switch_to_tab(tab).await;
        desktop.wait_for_url(&demo.page("h5")).await;
        desktop.wait_for_text("#who", employee).await;
    }
}

#[tokio::test]
async fn member_of_a_connected_corporation_binds_and_signs_in() {
    let demo = Demo::with(&["bind.proof=platform"]).await;
    let phone = Browser::start("phone", PHONE).await;
    phone.open(&demo.sign_in_page("h5")).await;
    phone.click("#redirect").await;
    choose_member(&phone, "p7001").await;
    phone.wait_for_text("h1", "Link your account").await;
    assert!(phone.text("main").await.contains("wwpartner/p7001"));
    phone.type_text("#employee_id", "nobody").await;
    phone.click("#submit").await;
    phone.wait_for_text("#problem", "No employee has this ID").await;
    let kept = phone.evaluate("document.querySelector('#employee_id').value").await;
    assert_eq!(kept, "nobody", "the input is kept");
    phone.evaluate("document.querySelector('#employee_id').value = ''").await;
    phone.type_text("#employee_id", "m5001").await;
    phone.click("#submit").await;
    phone.wait_for_text("#waiting", "An administrator must approve").await;
    assert!(phone.text("#waiting").await.contains("m5001"));

    wait_for_otp_step_with_time_left().await;
    let admin = demo.desk.sign_in("m5001").await;
    let device = OtpDevice::set_up_and_bind(&admin).await;
    admin.post_json("/api/auth/otp-verify", &json!({ "code": device.code(0) })).await.expect_code(0);
    let link = "/api/admin/links?corp_id=wwpartner&platform_user=p7001";
    admin.send("DELETE", link, &[], b"").await.expect_code(0);
    phone.wait_for_text("#problem", "Your request was refused").await;

    phone.evaluate("document.querySelector('#employee_id').value = ''").await;
    phone.type_text("#employee_id", "u1001").await;
    phone.click("#submit").await;
    phone.wait_for_text("#asked", "u1001").await;
    // The page of a member who comes back waits, too.
    phone.open(&format!("{}/api/auth/bind/page", demo.desk.public_url())).await;
    phone.wait_for_text("#asked", "u1001").await;
    let body = json!({ "corp_id": "wwpartner", "platform_user": "p7001", "employee_id": "u1001" }).to_string();
    let headers = [("Content-Type", "application/json")];
    admin.send("PUT", "/api/admin/links", &headers, body.as_bytes()).await.expect_code(0);
    phone.wait_for_url(&demo.page("h5")).await;
    phone.wait_for_text("#who", "u1001").await;

    // The next sign-in needs no bind page.
    let again = Browser::start("phone", PHONE).await;
    again.open(&demo.sign_in_page("h5")).await;
    again.click("#redirect").await;
    choose_member(&again, "p7001").await;
    again.wait_for_text("#who", "u1001").await;
}

#[tokio::test]
async fn bind_page_says_when_it_has_expired() {
    let demo = Demo::with(&["bind.proof=platform", "oauth2.flow_lifetime=8s"]).await;
    let phone = Browser::start("phone", PHONE).await;
    phone.open(&demo.sign_in_page("h5")).await;
    phone.click("#redirect").await;
    choose_member(&phone, "p7001").await;
    phone.wait_for_text("h1", "Link your account").await;
    phone.type_text("#employee_id", "m5001").await;
    phone.click("#submit").await;
    phone.wait_for_text("#waiting", "This page has expired").await;
    phone.wait_for_value("the way back", "!document.querySelector('#again').hidden").await;
}

#[tokio::test]
async fn role_switch_reaches_the_upstream() {
    let demo = Demo::start().await;
    let desktop = Browser::start("desktop", DESKTOP).await;
    demo.sign_in(&desktop, "itagent", "m5001").await;
    desktop.click("#ask").await;
    desktop.wait_for_text("#answer", "x-deskgate-current-role admin").await;
    desktop.click("button[data-role=user]").await;
    desktop
        .wait_for_value("the pressed role", "document.querySelector('[data-role=user]').ariaPressed === 'true'")
        .await;
    desktop.click("#ask").await;
    desktop.wait_for_text("#answer", "x-deskgate-current-role user").await;
    expect_no_console_errors(&desktop).await;
}

#[tokio::test]
async fn websocket_opens_with_the_echoed_subprotocol() {
    let demo = Demo::start().await;
    let desktop = Browser::start("desktop", DESKTOP).await;
    demo.sign_in(&desktop, "itagent", "a2001").await;
    desktop.click("#open").await;
    desktop.wait_for_value("an open socket", "document.querySelector('#socket').dataset.state === 'open'").await;
    desktop.wait_for_text("#log", "hello").await;
    desktop.type_text("#text", "is anybody there?").await;
    desktop.click("#send").await;
    desktop
        .wait_for_value(
            "the echo",
            "[...document.querySelectorAll('.from-desk')].some(e => e.textContent.includes('anybody'))",
        )
        .await;
    expect_no_console_errors(&desktop).await;
}

#[tokio::test]
async fn logout_in_one_tab_closes_the_websocket_of_another() {
    let demo = Demo::start().await;
    let desktop = Browser::start("desktop", DESKTOP).await;
    demo.sign_in(&desktop, "h5", "u1001").await;
    let first = desktop.tab().await;
    desktop.click("#open").await;
    desktop.wait_for_value("an open socket", "document.querySelector('#socket').dataset.state === 'open'").await;

    // A tab opened by a page starts with a copy of its session storage, so with the same session.
    desktop.evaluate("window.open(location.href) && true").await;
    let second =
        eventually("another tab", || async { desktop.tabs().await.into_iter().find(|tab| *tab != first) }).await;
    desktop.switch_to_tab(&second).await;
    desktop.wait_for_text("#who", "u1001").await;
    desktop.click("#logout").await;
    desktop.wait_for_value("the signed-out notice", "!document.querySelector('#ended').hidden").await;

    desktop.switch_to_tab(&first).await;
    desktop.wait_for_value("the signed-out notice of the other tab", "!document.querySelector('#ended').hidden").await;
    let log = desktop.evaluate("document.querySelector('#log').textContent").await.to_string();
    assert!(log.contains("4401"), "{log}");
}

#[tokio::test]
async fn sessions_are_listed_and_ended() {
    let demo = Demo::start().await;
    let (desktop, phone) = tokio::join!(Browser::start("desktop", DESKTOP), Browser::start("phone", PHONE));
    tokio::join!(demo.sign_in(&phone, "h5", "u1001"), demo.sign_in(&desktop, "h5", "u1001"));
    desktop.open(&demo.page("h5")).await;
    desktop.wait_for_text("#sessions", "Android").await;
    desktop.click("#sessions button").await;
    desktop.wait_for_value("one session left", "document.querySelectorAll('#sessions li').length === 1").await;
    phone.click("#ask").await;
    phone.wait_for_value("the signed-out notice", "!document.querySelector('#ended').hidden").await;
}

#[tokio::test]
async fn page_reports_a_lost_network_and_recovers() {
    let demo = Demo::start().await;
    let (desktop, phone) = tokio::join!(Browser::start("desktop", DESKTOP), Browser::start("phone", PHONE));
    desktop.open(&demo.sign_in_page("h5")).await;
    let code = desktop.qr_code("#code").await;
    desktop.wait_for_text("#status", "Waiting").await;
    desktop.set_offline(true).await;
    desktop.wait_for_text("#status", "Connection lost").await;
    phone.open(&code).await;
    choose_member(&phone, "u1001").await;
    phone.click("button[value=confirm]").await;
    phone.wait_for_text("h1", "You are signed in").await;
    desktop.set_offline(false).await;
    desktop.wait_for_url(&demo.page("h5")).await;
    desktop.wait_for_text("#who", "u1001").await;
}

/// A callback with a forged code; without a ticket while the platform's circuit is open.
async fn forged_callback(demo: &Demo) -> String {
    let response = demo.desk.anonymous().get("/api/auth/qrcode").await;
    let state = match response.status {
        200 => query_parameter(response.data()["qrcode_url"].as_str().expect("a URL"), "state").expect("a state"),
        _ => "none".to_owned(),
    };
    // Each ticket gets a code of its own: the gateway refuses one that arrived for another ticket.
    format!("/api/auth/oauth2/callback?code=forged{state}&state={state}")
}

#[tokio::test]
async fn page_reports_an_unresponsive_platform() {
    let demo = Demo::start().await;
    let platform = Client::new(demo.desk.platform_address());
    let switches = json!({ "bad_gateway": { "*": "all" } });
    platform
        .send("PATCH", "/simulator/switches", &[("Content-Type", "application/json")], switches.to_string().as_bytes())
        .await;
    let desktop = Browser::start("desktop", DESKTOP).await;
    // The circuit may close before the page loads, so each round opens it again.
    eventually("the error on the page", || async {
        for _ in 0..5 {
            demo.desk.phone("u1001").client().get(&forged_callback(&demo).await).await;
        }
        desktop.open(&demo.sign_in_page("h5")).await;
        desktop.wait_for_value("a state", "document.querySelector('#signin').dataset.state !== 'loading'").await;
        desktop.text("#status").await.contains("WeCom isn't responding").then_some(())
    })
    .await;
    platform.send("DELETE", "/simulator/switches", &[], b"").await;
    desktop.wait_for_text("#status", "Waiting").await;
}

#[tokio::test]
async fn pages_have_both_languages_and_no_layout_shift() {
    let demo = Demo::start().await;
    let chinese = BrowserProfile { language: "zh-CN", dark: true, ..PHONE };
    let (desktop, phone) = tokio::join!(Browser::start("desktop", DESKTOP), Browser::start("phone", chinese));
    for (browser, lang, title) in [(&desktop, "en", "Sign in with WeCom"), (&phone, "zh-CN", "使用企业微信登录")]
    {
        browser.open(&demo.sign_in_page("h5")).await;
        browser.qr_code("#code").await;
        browser.wait_for_text("h1", title).await;
        assert_eq!(browser.evaluate("document.documentElement.lang").await, lang);
        let too_wide = browser.evaluate("document.documentElement.scrollWidth > innerWidth").await;
        assert_eq!(too_wide, false, "{lang}: the page scrolls sideways");
        let layout_shift = "(() => { let sum = 0; const seen = new PerformanceObserver(() => {}); \
             seen.observe({ type: 'layout-shift', buffered: true }); \
             for (const shift of seen.takeRecords()) sum += shift.value; return sum; })()";
        assert_eq!(browser.evaluate(layout_shift).await, 0, "{lang}: layout shift");
        expect_no_console_errors(browser).await;
    }
    desktop.click("a.language").await;
    desktop.wait_for_text("h1", "使用企业微信登录").await;
}

#[tokio::test]
async fn client_takes_no_token_that_its_tab_did_not_ask_for() {
    let demo = Demo::start().await;
    let planted = demo.desk.sign_in("a2001").await;
    let link = format!("{}#token={}&token_type=Bearer", demo.page("h5"), planted.token());
    let desktop = Browser::start("desktop", DESKTOP).await;
    desktop.open(&link).await;
    desktop.wait_for_url(&demo.sign_in_page("h5")).await;
    let stored = desktop.evaluate("sessionStorage.getItem('token')").await;
    assert!(stored.is_null(), "the planted token was kept");

    demo.redirect(&desktop, "h5", "u1001").await;
    desktop.open("about:blank").await;
    desktop.open(&link).await;
    desktop.wait_for_text("#who", "u1001").await;
    assert!(!desktop.url().await.contains("token"), "the planted token stays in the address bar");
}

#[tokio::test]
async fn client_takes_the_token_of_a_qr_code_that_its_tab_asked_for() {
    let demo = Demo::start().await;
    let (desktop, phone) = tokio::join!(Browser::start("desktop", DESKTOP), Browser::start("phone", PHONE));
    desktop.open(&demo.page("h5")).await;
    desktop.wait_for_url(&demo.sign_in_page("h5")).await;
    phone.open(&desktop.qr_code("#code").await).await;
    choose_member(&phone, "u1001").await;
    phone.click("button[value=confirm]").await;
    desktop.wait_for_url(&demo.page("h5")).await;
    desktop.wait_for_text("#who", "u1001").await;
}

/// The current code of the device whose `otpauth:` URL is in a QR code.
fn one_time_code(otpauth_url: &str, steps: i64) -> String {
    use deskgate::domain::clock::Clock;
    use deskgate::signin::totp::{OtpSecret, Step};
    let secret = query_parameter(otpauth_url, "secret").expect("a secret");
    let secret = OtpSecret::from_bytes(&decode_base32(&secret)).expect("a secret");
    secret.code(Step::from_number(Step::at(Clock::system().now()).number() + steps)).text()
}

#[tokio::test]
async fn device_is_set_up_in_the_client_and_its_next_code_steps_up() {
    let demo = Demo::start().await;
    let desktop = Browser::start("desktop", DESKTOP).await;
    demo.sign_in(&desktop, "h5", "u1001").await;
    desktop.wait_for_text("#device-state", "No device").await;
    desktop.click("#set-up").await;
    desktop.wait_for_value("a QR code", "document.querySelector('#device-code').naturalWidth > 0").await;
    let url = desktop.qr_code("#device-code").await;
    desktop.type_text("#code", &one_time_code(&url, 0)).await;
    desktop.click("#confirm button").await;
    desktop.wait_for_text("#device-state", "Enter its code").await;
    desktop.type_text("#code", &one_time_code(&url, 1)).await;
    desktop.click("#confirm button").await;
    desktop.wait_for_text("#device-state", "Confirmed until").await;
    expect_no_console_errors(&desktop).await;
}

#[tokio::test]
async fn client_sends_the_employee_to_sign_in_again_for_a_first_device() {
    let demo = Demo::with(&["otp.enrol_within=0s"]).await;
    let desktop = Browser::start("desktop", DESKTOP).await;
    demo.sign_in(&desktop, "h5", "u1001").await;
    desktop.click("#set-up").await;
    desktop.wait_for_url(&demo.sign_in_page("h5")).await;
    demo.redirect(&desktop, "h5", "u1001").await;
}

/// Serves a page with this script at every path.
fn serve_page(server: &Upstream, script: &str) {
    let page = format!("<!doctype html><title>Client</title><h1>Client</h1><script>{script}</script>");
    server.set_behaviour(Behaviour::Respond(ok_response("Content-Type: text/html\r\n", page.as_bytes())));
}

/// Sends a request from the script of the current page. Returns what the script can read of the response, or the name
/// of the error.
async fn fetch(browser: &Browser, url: &str, options: &Value) -> Value {
    let read = "async r => ({ status: r.status, body: await r.json(), id: r.headers.get('X-Request-Id') })";
    let script = format!(
        "(fetched = null, fetch('{url}', {options}).then({read}).catch(e => ({{ error: e.name }})) \
         .then(result => fetched = result), true)"
    );
    browser.evaluate(&script).await;
    browser.wait_for_value("the result of a request", "fetched").await
}

#[tokio::test]
async fn client_on_another_origin_signs_in_and_calls_the_gateway() {
    let (client, foreign) = (Upstream::start().await, Upstream::start().await);
    let page = format!("http://{}/h5/", client.address());
    let desk = Gateway::setup().toml(&format!("[clients]\nh5 = \"{page}\"")).start().await;
    let gateway = desk.public_url();
    let hand_on = "if (location.search) location.replace(`GATEWAY/api/auth/oauth2/callback${location.search}`)";
    serve_page(&client, &hand_on.replace("GATEWAY", &gateway));
    serve_page(&foreign, "");
    let browser = Browser::start("desktop", DESKTOP).await;
    browser.open(&format!("{gateway}/api/auth/signin?client=h5")).await;
    browser.click("#redirect").await;
    choose_member(&browser, "u1001").await;
    browser.wait_for_url(&format!("{page}#")).await;
    let token = fragment_parameter(&browser.url().await, "token").expect("a token");
    let signed_in = json!({ "Authorization": format!("Bearer {token}") });
    let with = |method: &str, headers: &Value| json!({ "method": method, "headers": headers });
    let json_body = json!({ "Authorization": signed_in["Authorization"], "Content-Type": "application/json" });

    let me = fetch(&browser, &format!("{gateway}/api/auth/me"), &with("GET", &signed_in)).await;
    assert_eq!((&me["status"], &me["body"]["data"]["employee_id"]), (&json!(200), &json!("u1001")), "{me}");
    assert_eq!(me["id"], me["body"]["request_id"], "the request id can be read");
    let proxied = fetch(&browser, &format!("{gateway}/api/desk/x"), &with("PUT", &json_body)).await;
    assert_eq!((&proxied["status"], &proxied["body"]["method"]), (&json!(200), &json!("PUT")), "{proxied}");
    let refused = fetch(&browser, &format!("{gateway}/api/agent-desk/x"), &with("GET", &signed_in)).await;
    assert_eq!((&refused["status"], &refused["body"]["code"]), (&json!(403), &json!(1003)), "{refused}");
    let anonymous = fetch(&browser, &format!("{gateway}/api/desk/x"), &json!({})).await;
    assert_eq!((&anonymous["status"], &anonymous["body"]["code"]), (&json!(401), &json!(1001)), "{anonymous}");

    desk.upstream.clear_requests();
    let blocked = json!({ "error": "TypeError" });
    let forged = json!({ "Authorization": signed_in["Authorization"], "X-Deskgate-Roles": "admin" });
    assert_eq!(fetch(&browser, &format!("{gateway}/api/desk/x"), &with("GET", &forged)).await, blocked);
    assert_eq!(fetch(&browser, &format!("{gateway}/api/read-only/x"), &with("DELETE", &signed_in)).await, blocked);

    browser.open(&format!("http://{}/", foreign.address())).await;
    for (path, options) in [
        ("/api/auth/me", with("GET", &signed_in)),
        ("/api/desk/x", with("PUT", &json_body)),
        ("/public/x", with("DELETE", &json!({}))),
        ("/version", json!({})),
    ] {
        assert_eq!(fetch(&browser, &format!("{gateway}{path}"), &options).await, blocked, "{path}");
    }
    assert!(desk.upstream.requests().is_empty(), "no request followed a refused preflight");
}
