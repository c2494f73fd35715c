use std::net::{Ipv4Addr, SocketAddr};

use futures::future::join_all;

use super::*;
use crate::demo::tests::browser::{code_of, open};
use crate::demo::{self, AGENT_ID, CORP_ID, MemberKind, SECRET, SimulatedPlatform, path};

mod odd_responses;

mod outages;

/// The client and the simulator that it talks to, each on its own clock.
struct Pair {
    simulator: SimulatedPlatform,
    simulator_clock: Clock,
    client: WecomPlatform,
    client_clock: Clock,
}

fn settings(authorize_url: &str, api_url: &str) -> WecomSettings {
    WecomSettings {
        corp_id: CorpId::new(CORP_ID),
        agent_id: Some(AGENT_ID.to_owned()),
        secret: Secret::new(SECRET.to_owned()),
        authorize_url: Url::parse(authorize_url).unwrap(),
        api_url: Url::parse(api_url).unwrap(),
        timeout: Duration::from_secs(10),
    }
}

impl Pair {
    async fn start() -> Pair {
        Self::start_with(|_| {}).await
    }

    async fn start_with(change: impl FnOnce(&mut WecomSettings)) -> Pair {
        let (simulator_clock, client_clock) = (Clock::system(), Clock::system());
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let simulator = SimulatedPlatform::start(listen, simulator_clock.clone()).await.unwrap();
        let mut settings = settings(simulator.authorize_url().as_str(), simulator.api_url().as_str());
        change(&mut settings);
        let client = WecomPlatform::with_clock(settings, client_clock.clone()).unwrap();
        Pair { simulator, simulator_clock, client, client_clock }
    }

    async fn identify(&self, who: &str) -> Result<Person, PlatformError> {
        self.client.identify(&code_of(&self.simulator, who).await).await
    }

    async fn profile(&self, who: &str) -> Result<Profile, PlatformError> {
        self.client.profile(&member(who)).await
    }

    fn tokens_fetched(&self) -> u64 {
        self.simulator.calls(path::TOKEN)
    }
}

fn member(id: &str) -> Person {
    Person::Member { employee_id: EmployeeId::new(id) }
}

#[test]
fn the_authorize_url_has_the_exact_form_of_the_specification() {
    const WECOM: &str = "https://open.weixin.qq.com/connect/oauth2/authorize";
    let table = [
        (
            "the example of the documentation",
            "wxCorpId",
            None,
            "http://api.3dept.com/cgi-bin/query?action=get",
            "",
            "appid=wxCorpId&redirect_uri=http%3A%2F%2Fapi.3dept.com%2Fcgi-bin%2Fquery%3Faction%3Dget\
             &response_type=code&scope=snsapi_base&state=#wechat_redirect",
        ),
        (
            "with an application",
            "wwdemo",
            Some("1000002"),
            "https://desk.example/h5/",
            "auth_login",
            "appid=wwdemo&redirect_uri=https%3A%2F%2Fdesk.example%2Fh5%2F\
             &response_type=code&scope=snsapi_base&state=auth_login&agentid=1000002#wechat_redirect",
        ),
        (
            "delimiters are escaped",
            "wwdemo",
            None,
            "https://desk.example/h5/?a=1&b=%20#部",
            "a&b=c#d",
            "appid=wwdemo&redirect_uri=https%3A%2F%2Fdesk.example%2Fh5%2F%3Fa%3D1%26b%3D%2520%23%E9%83%A8\
             &response_type=code&scope=snsapi_base&state=a%26b%3Dc%23d#wechat_redirect",
        ),
    ];
    for (case, corp_id, agent_id, redirect_uri, state, expected) in table {
        let mut settings = settings(WECOM, "http://127.0.0.1/");
        settings.corp_id = CorpId::new(corp_id);
        settings.agent_id = agent_id.map(str::to_owned);
        let client = WecomPlatform::new(settings).unwrap();
        let url = client.authorize_url(AuthorizeRequest { redirect_uri, state });
        assert_eq!(url.as_str(), format!("{WECOM}?{expected}"), "{case}");
    }
}

#[tokio::test]
async fn a_code_identifies_its_member() {
    let pair = Pair::start().await;
    for id in ["u1001", "a2001", "s3001", "c4001", "m5001", "n6001", "x8001"] {
        assert_eq!(pair.identify(id).await, Ok(member(id)));
    }
    let linked = Person::Linked { corp_id: CorpId::new("wwpartner"), employee_id: EmployeeId::new("p7001") };
    assert_eq!(pair.identify("wwpartner/p7001").await, Ok(linked));
    assert_eq!(pair.tokens_fetched(), 1);
}

#[tokio::test]
async fn the_platform_accepts_the_authorize_url() {
    let pair = Pair::start().await;
    let request = AuthorizeRequest { redirect_uri: "https://desk.example/h5/?a=1", state: "auth_login" };
    let mut url = pair.client.authorize_url(request);
    url.query_pairs_mut().append_pair("as", "u1001");
    let seen = open(url).await;
    let back = Url::parse(seen.location()).unwrap();
    let code = back.query_pairs().find(|(name, _)| name == "code").unwrap().1.into_owned();
    assert_eq!(back.as_str(), format!("https://desk.example/h5/?a=1&code={code}&state=auth_login"));
    assert_eq!(pair.client.identify(&code).await, Ok(member("u1001")));
}

#[tokio::test]
async fn an_invalid_code_is_rejected() {
    let pair = Pair::start().await;
    let invalid = Err(PlatformError::InvalidCode);

    let code = code_of(&pair.simulator, "u1001").await;
    assert_eq!(pair.client.identify(&code).await, Ok(member("u1001")));
    assert_eq!(pair.client.identify(&code).await, invalid, "used before");

    let code = code_of(&pair.simulator, "u1001").await;
    pair.simulator_clock.advance(Duration::from_secs(300));
    assert_eq!(pair.client.identify(&code).await, invalid, "expired");

    assert_eq!(pair.client.identify("forged").await, invalid, "forged");
    let calls = pair.simulator.calls(path::USER_INFO);
    assert_eq!(pair.client.identify("").await, invalid, "empty");
    assert_eq!(pair.client.identify(&"c".repeat(513)).await, invalid, "too long");
    assert_eq!(pair.simulator.calls(path::USER_INFO), calls, "rejected without a call");
}

#[tokio::test]
async fn a_profile_has_name_department_and_status() {
    let pair = Pair::start().await;
    for known in demo::members() {
        let status = match known.kind {
            MemberKind::Active => MemberStatus::Active,
            MemberKind::Disabled => MemberStatus::Inactive(InactiveReason::Disabled),
            _ => continue,
        };
        let profile = pair.profile(known.userid).await.unwrap();
        assert_eq!((profile.name.as_str(), profile.department.as_str()), (known.name, known.department));
        assert_eq!((profile.avatar.as_str(), profile.status), ("", status), "{}", known.userid);
    }
    for stranger in ["z9999", "p7001", "wwpartner/p7001"] {
        let gone = Profile::undisclosed(MemberStatus::Inactive(InactiveReason::Gone));
        assert_eq!(pair.profile(stranger).await, Ok(gone), "{stranger}");
    }
}

#[tokio::test]
async fn a_department_name_is_cached_for_ten_minutes() {
    let pair = Pair::start().await;
    for id in ["a2001", "s3001", "m5001", "a2001"] {
        assert_eq!(pair.profile(id).await.unwrap().department, "IT");
    }
    assert_eq!(pair.simulator.calls(path::DEPARTMENT), 1);
    pair.client_clock.advance(Duration::from_secs(600));
    assert_eq!(pair.profile("a2001").await.unwrap().department, "IT");
    assert_eq!(pair.simulator.calls(path::DEPARTMENT), 2);
}

#[tokio::test]
async fn a_configuration_error_names_the_setting() {
    let wrong_secret = |settings: &mut WecomSettings| settings.secret = Secret::new("wrong".to_owned());
    let wrong_corp = |settings: &mut WecomSettings| settings.corp_id = CorpId::new("wwother");
    let table = [
        (Pair::start_with(wrong_secret).await, "platform.secret_file", 40001),
        (Pair::start_with(wrong_corp).await, "platform.corp_id", 40013),
    ];
    for (pair, setting, errcode) in table {
        let expected = PlatformError::Configuration { setting, errcode };
        assert_eq!(pair.identify("u1001").await, Err(expected.clone()));
        assert_eq!(pair.profile("u1001").await, Err(expected));
    }
}

#[tokio::test]
async fn the_path_of_the_api_url_is_kept() {
    let pair = Pair::start_with(|settings| settings.api_url = settings.api_url.join("relay").unwrap()).await;
    let missing = PlatformError::Unavailable("responded with status 404".to_owned());
    assert_eq!(pair.identify("u1001").await, Err(missing));
    assert_eq!(pair.client.endpoint("cgi-bin/gettoken").path(), "/relay/cgi-bin/gettoken");
}

#[tokio::test]
async fn a_rejected_token_is_replaced_once() {
    let pair = Pair::start().await;
    pair.identify("u1001").await.unwrap();

    pair.simulator_clock.advance(Duration::from_secs(7200));
    assert_eq!(pair.identify("u1001").await, Ok(member("u1001")), "expired: 42001");
    assert_eq!((pair.tokens_fetched(), pair.simulator.calls(path::USER_INFO)), (2, 3));

    pair.simulator.revoke_tokens();
    assert_eq!(pair.identify("u1001").await, Ok(member("u1001")), "withdrawn: 40014");
    assert_eq!((pair.tokens_fetched(), pair.simulator.calls(path::USER_INFO)), (3, 5));
}

#[tokio::test]
async fn a_token_is_replaced_before_it_expires() {
    let pair = Pair::start().await;
    pair.identify("u1001").await.unwrap();
    for (span, fetched) in [(6990, 1), (20, 2)] {
        for clock in [&pair.simulator_clock, &pair.client_clock] {
            clock.advance(Duration::from_secs(span));
        }
        assert_eq!(pair.identify("u1001").await, Ok(member("u1001")));
        assert_eq!(pair.tokens_fetched(), fetched, "{span} seconds later");
    }
    assert_eq!(pair.simulator.calls(path::USER_INFO), 3, "no call was rejected meanwhile");
}

#[tokio::test]
async fn a_hundred_callers_fetch_one_token() {
    let pair = Pair::start().await;
    let codes = join_all((0..200).map(|_| code_of(&pair.simulator, "u1001"))).await;
    let (first, second) = codes.split_at(100);
    for person in join_all(first.iter().map(|code| pair.client.identify(code))).await {
        assert_eq!(person, Ok(member("u1001")));
    }
    assert_eq!(pair.tokens_fetched(), 1);
    pair.simulator.revoke_tokens();
    for person in join_all(second.iter().map(|code| pair.client.identify(code))).await {
        assert_eq!(person, Ok(member("u1001")));
    }
    assert_eq!(pair.tokens_fetched(), 2, "all were rejected, one fetched again");
}

#[tokio::test]
async fn a_hundred_callers_share_one_failed_fetch() {
    let pair = Pair::start_with(|settings| settings.secret = Secret::new("wrong".to_owned())).await;
    for refused in join_all((0..100).map(|_| pair.client.identify("code"))).await {
        assert_eq!(refused.unwrap_err().class(), "configuration");
    }
    assert_eq!(pair.tokens_fetched(), 1);
    pair.client.identify("code").await.unwrap_err();
    assert_eq!(pair.tokens_fetched(), 1, "not fetched again at once");
    pair.client_clock.advance(Duration::from_secs(10));
    pair.client.identify("code").await.unwrap_err();
    assert_eq!(pair.tokens_fetched(), 2, "fetched again after the pause");
}
