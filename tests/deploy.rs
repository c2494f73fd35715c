//! Checks what is under deploy/ and conf/ against the program and against the tools that read it.

// A failed expectation is the test's result.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use base64::Engine;
use demo::Demo;
use deskgate::config::{Config, load_text};
use serde_json::{Value, json};

#[path = "servers/demo.rs"]
mod demo;

/// What `systemd-analyze security` may rate the unit at most, in tenths.
const EXPOSURE: u32 = 15;

/// What the gateway needs to cut and log the requests that outlast a drain.
const CUT: Duration = Duration::from_secs(2);

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn yaml(name: &str) -> Value {
    serde_saphyr::from_str(&read(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Every file of a folder and its subfolders, relative to the repository.
fn files(folder: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut waiting = vec![PathBuf::from(folder)];
    while let Some(folder) = waiting.pop() {
        for entry in std::fs::read_dir(root().join(&folder)).expect("a folder").flatten() {
            let path = folder.join(entry.file_name());
            if entry.path().is_dir() { waiting.push(path) } else { found.push(path.to_str().expect("text").to_owned()) }
        }
    }
    found.sort();
    found
}

fn run(program: &str, arguments: &[&str]) -> Output {
    let output = Command::new(program).args(arguments).current_dir(root()).output();
    output.unwrap_or_else(|error| panic!("{program}: {error}; `make test` installs it"))
}

fn expect_success(program: &str, arguments: &[&str]) {
    let output = run(program, arguments);
    let printed = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{program} {arguments:?}:\n{}", String::from_utf8_lossy(&printed));
}

/// The words of a text that could be names of metrics, such as `deskgate_build_info`.
fn words(text: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    text.split(|c| !is_name(c)).filter(|word| word.contains("deskgate_")).map(str::to_owned).collect()
}

/// The metrics in a text, without the endings of the series of a histogram.
fn metrics_in(text: &str, known: &BTreeSet<String>) -> BTreeSet<String> {
    let family = |word: String| {
        let bare = ["_bucket", "_count", "_sum"].iter().find_map(|end| word.strip_suffix(end));
        bare.filter(|bare| known.contains(*bare)).map_or(word.clone(), str::to_owned)
    };
    words(text).into_iter().map(family).collect()
}

/// The metrics that the program declares: each is a name followed by its help text, in `src/metrics.rs` or below.
fn declared_metrics() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for file in files("src/metrics").into_iter().chain(["src/metrics.rs".to_owned()]) {
        let text = read(&file);
        let literals: Vec<&str> = text.split('"').collect();
        for (index, name) in literals.iter().enumerate().skip(1).step_by(2) {
            let is_name = name.len() > 3 && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
            let help = literals.get(index + 1).filter(|between| between.trim() == ",").and(literals.get(index + 2));
            if is_name && help.is_some_and(|help| help.contains(' ') && help.ends_with('.')) {
                names.insert(format!("deskgate_{name}"));
            }
        }
    }
    names
}

/// The metrics that a running gateway shows.
fn shown_metrics() -> BTreeSet<String> {
    let folder = tempfile::tempdir().expect("folder");
    let demo = Demo::start(folder.path());
    let mut connection = TcpStream::connect(demo.printed("admin")).expect("a connection");
    connection.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("a request");
    let mut page = String::new();
    connection.read_to_string(&mut page).expect("a page");
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    types.map(str::to_owned).collect()
}

fn all_metrics() -> BTreeSet<String> {
    let (declared, shown) = (declared_metrics(), shown_metrics());
    assert!(declared.len() > 50, "only {} metrics were read from the source", declared.len());
    assert!(shown.len() > 30, "only {} metrics are shown", shown.len());
    let of_process = |name: &&String| name.starts_with("deskgate_process_");
    let unknown: Vec<&String> = shown.difference(&declared).filter(|name| !of_process(name)).collect();
    assert!(unknown.is_empty(), "shown, but not read from the source: {unknown:?}");
    declared.union(&shown).cloned().collect()
}

fn dashboard() -> Value {
    serde_json::from_str(&read("deploy/grafana/deskgate.json")).expect("JSON")
}

/// Every expression of every panel, with the panel's title.
fn expressions(dashboard: &Value) -> Vec<(String, String)> {
    let panels = dashboard["panels"].as_array().expect("panels").iter().filter(|panel| panel["type"] != "row");
    panels
        .flat_map(|panel| {
            let title = panel["title"].as_str().expect("a title");
            let targets = panel["targets"].as_array().expect("targets").iter();
            targets.map(|target| (title.to_owned(), target["expr"].as_str().expect("an expression").to_owned()))
        })
        .collect()
}

/// The rules of a file of rules: those with `key`, which is `alert` or `record`.
fn rules(file: &str, key: &str) -> Vec<Value> {
    let groups = yaml(file)["groups"].as_array().expect("groups").clone();
    let rules = groups.iter().flat_map(|group| group["rules"].as_array().expect("rules").clone());
    rules.filter(|rule| rule.get(key).is_some()).collect()
}

fn alerts() -> Vec<Value> {
    rules("deploy/prometheus/alerts.yaml", "alert")
}

fn text<'v>(value: &'v Value, what: &str) -> &'v str {
    value.as_str().unwrap_or_else(|| panic!("{what} is missing"))
}

#[test]
fn every_metric_is_on_the_dashboard() {
    let known = all_metrics();
    let shown: BTreeSet<String> =
        expressions(&dashboard()).iter().flat_map(|(_, expression)| metrics_in(expression, &known)).collect();
    let missing: Vec<&String> = known.difference(&shown).collect();
    assert!(missing.is_empty(), "not on the dashboard: {missing:?}");
}

#[test]
fn every_metric_of_a_panel_alert_or_rule_exists() {
    let mut known = all_metrics();
    let recorded = rules("deploy/prometheus/recording.yaml", "record");
    known.extend(recorded.iter().map(|rule| text(&rule["record"], "a name").to_owned()));
    let expression = |rule: &Value, key: &str| {
        (text(&rule[key], "a name").to_owned(), text(&rule["expr"], "an expression").to_owned())
    };
    let mut all = expressions(&dashboard());
    all.extend(alerts().iter().map(|rule| expression(rule, "alert")));
    all.extend(recorded.iter().map(|rule| expression(rule, "record")));
    for (place, expression) in all {
        let unknown: Vec<String> = metrics_in(&expression, &known).difference(&known).cloned().collect();
        assert!(unknown.is_empty(), "{place}: {unknown:?}");
    }
    let pages = ["docs/runbook.md", "docs/zh-CN/runbook.md"].map(|page| (page, metrics_in(&read(page), &known)));
    for (page, names) in pages {
        let unknown: Vec<&String> = names.difference(&known).collect();
        assert!(unknown.is_empty(), "{page}: {unknown:?}");
    }
}

#[test]
fn names_of_metrics_are_found_in_expressions() {
    let known = BTreeSet::from(["deskgate_a_seconds".to_owned(), "deskgate_b_total".to_owned()]);
    let found =
        metrics_in(r#"rate(deskgate_a_seconds_bucket{le="1"}[5m]) / deskgate_b_total + job:deskgate_c:rate5m"#, &known);
    let names: Vec<&str> = found.iter().map(String::as_str).collect();
    assert_eq!(names, ["deskgate_a_seconds", "deskgate_b_total", "job:deskgate_c:rate5m"]);
    assert_eq!(metrics_in("deskgate_b_count", &known), BTreeSet::from(["deskgate_b_count".to_owned()]));
}

#[test]
fn dashboard_is_the_output_of_its_script() {
    let printed = run("python3", &["deploy/grafana/dashboard.py"]);
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    let same = read("deploy/grafana/deskgate.json").as_bytes() == printed.stdout;
    assert!(same, "run deploy/grafana/dashboard.py > deploy/grafana/deskgate.json");
}

#[test]
fn panels_have_units_legends_and_descriptions() {
    let dashboard = dashboard();
    let panels: Vec<_> = dashboard["panels"].as_array().expect("panels").iter().collect();
    let numbers: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64().expect("a number")).collect();
    assert_eq!(numbers.len(), panels.len(), "two panels have the same number");
    let mut taken = BTreeSet::new();
    for panel in panels {
        let title = panel["title"].as_str().expect("a title");
        let [left, top, width, height] =
            ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().expect("a place"));
        assert!(left + width <= 24, "{title} does not fit");
        for cell in (left..left + width).flat_map(|x| (top..top + height).map(move |y| (x, y))) {
            assert!(taken.insert(cell), "{title} covers another panel");
        }
        if panel["type"] == "row" {
            continue;
        }
        assert!(panel["description"].as_str().is_some_and(|text| text.ends_with('.')), "{title} has no description");
        assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{title} has no unit");
        for target in panel["targets"].as_array().expect("targets") {
            assert!(target["legendFormat"].as_str().is_some_and(|legend| !legend.is_empty()), "{title} has no legend");
            let expression = target["expr"].as_str().expect("an expression");
            assert!(expression.contains(r#"job=~"$job""#), "{title} does not follow the chosen job");
        }
    }
}

#[test]
fn promtool_accepts_the_rules_and_their_tests() {
    expect_success(
        "promtool",
        &["check", "rules", "deploy/prometheus/recording.yaml", "deploy/prometheus/alerts.yaml"],
    );
    expect_success("promtool", &["test", "rules", "deploy/prometheus/tests.yaml"]);
}

#[test]
fn every_alert_says_how_urgent_it_is_and_where_to_read_on() {
    for alert in alerts() {
        let name = text(&alert["alert"], "a name");
        let severity = text(&alert["labels"]["severity"], name);
        assert!(["critical", "warning"].contains(&severity), "{name}: {severity}");
        assert!(text(&alert["annotations"]["summary"], name).ends_with('.'), "{name} has no summary");
        let runbook = format!("docs/runbook.md#{}", name.to_lowercase());
        assert_eq!(text(&alert["annotations"]["runbook_url"], name), runbook);
    }
}

#[test]
fn every_alert_is_tested_to_fire_and_not_to_fire() {
    let tests = yaml("deploy/prometheus/tests.yaml");
    let mut fires: BTreeMap<String, [bool; 2]> = BTreeMap::new();
    for test in tests["tests"].as_array().expect("tests") {
        for case in test["alert_rule_test"].as_array().expect("cases") {
            let expected = case["exp_alerts"].as_array().expect("alerts");
            fires.entry(text(&case["alertname"], "a name").to_owned()).or_default()[usize::from(expected.is_empty())] =
                true;
        }
    }
    let names: BTreeSet<String> = alerts().iter().map(|alert| text(&alert["alert"], "a name").to_owned()).collect();
    assert_eq!(fires.keys().cloned().collect::<BTreeSet<_>>(), names);
    let half: Vec<_> = fires.iter().filter(|(_, cases)| cases.contains(&false)).collect();
    assert!(half.is_empty(), "[fires, does not fire]: {half:?}");
    // Groups are tested in the order in which they are loaded: the alerts use the recording rules.
    let groups = |file| yaml(file)["groups"].as_array().expect("groups").clone();
    let loaded = [groups("deploy/prometheus/recording.yaml"), groups("deploy/prometheus/alerts.yaml")].concat();
    let loaded: Vec<&str> = loaded.iter().map(|group| text(&group["name"], "a name")).collect();
    let order = tests["group_eval_order"].as_array().expect("an order");
    assert_eq!(order.iter().map(|name| text(name, "a name")).collect::<Vec<_>>(), loaded);
}

#[test]
fn runbook_has_a_section_for_every_alert_and_no_other() {
    let names: Vec<String> = alerts().iter().map(|alert| text(&alert["alert"], "a name").to_owned()).collect();
    let english = read("docs/runbook.md");
    let sections: Vec<&str> = english.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    assert_eq!(sections, names, "docs/runbook.md has the sections in the order of deploy/prometheus/alerts.yaml");
    for section in english.split("\n### ").skip(1) {
        let name = section.lines().next().expect("a name");
        for part in ["**Meaning:**", "**Look:**", "**Do:**"] {
            assert!(section.contains(part), "{name} has no {part}");
        }
    }
}

/// The unit and the socket in a folder of their own, where the program is the one that is tested.
fn units(change: impl Fn(String) -> String) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("folder");
    for name in ["deskgate.service", "deskgate.socket"] {
        let unit = read(&format!("deploy/systemd/{name}"));
        assert!(!unit.contains("\n\n\n"));
        let unit = unit.replace("/usr/local/bin/deskgate", env!("CARGO_BIN_EXE_deskgate"));
        std::fs::write(folder.path().join(name), change(unit)).expect("a unit");
    }
    folder
}

fn path(folder: &tempfile::TempDir, name: &str) -> String {
    folder.path().join(name).to_str().expect("text").to_owned()
}

#[test]
fn systemd_accepts_the_units() {
    let folder = units(|unit| unit);
    let arguments = ["verify".to_owned(), path(&folder, "deskgate.service"), path(&folder, "deskgate.socket")];
    let output = run("systemd-analyze", &arguments.each_ref().map(String::as_str));
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && printed.is_empty(), "{printed}");
    // An unknown setting is only warned about.
    let folder = units(|unit| unit.replace("NotifyAccess=", "NotifyAccept="));
    let output = run("systemd-analyze", &["verify", &path(&folder, "deskgate.service")]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("NotifyAccept"), "a misspelled setting is noticed");
}

#[test]
fn unit_is_hardened() {
    let rate = |folder: &tempfile::TempDir| {
        let threshold = format!("--threshold={EXPOSURE}");
        run(
            "systemd-analyze",
            &["security", "--offline=yes", "--no-pager", &threshold, &path(folder, "deskgate.service")],
        )
    };
    let output = rate(&units(|unit| unit));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let weaker =
        units(|unit| unit.lines().filter(|line| !line.starts_with("SystemCallFilter=")).collect::<Vec<_>>().join("\n"));
    assert!(!rate(&weaker).status.success(), "a unit without a filter of system calls is rated worse");
}

fn pem(label: &str, der: &[u8]) -> String {
    let body = base64::prelude::BASE64_STANDARD.encode(der);
    let lines: Vec<&str> = body.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).expect("text")).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

/// An example configuration whose files exist: secrets, certificates and rules.
fn example(name: &str, folder: &Path) -> String {
    let certificate = rcgen::generate_simple_self_signed(["desk.example.com".to_owned()]).expect("a certificate");
    let secret = folder.join("secret");
    let made = Command::new(env!("CARGO_BIN_EXE_deskgate")).args(["secret", "new"]).arg(&secret).output();
    assert!(secret.exists() || made.is_ok_and(|output| output.status.success()), "a secret");
    let contents = [
        ("tls.crt", pem("CERTIFICATE", certificate.cert.der())),
        ("ca.crt", pem("CERTIFICATE", certificate.cert.der())),
        ("tls.key", pem("PRIVATE KEY", &certificate.signing_key.serialize_der())),
        ("fleet.secret", std::fs::read_to_string(&secret).expect("the secret")),
        ("wecom.secret", "a secret\n".to_owned()),
        ("redis.password", "a password\n".to_owned()),
        ("postgres.password", "a password\n".to_owned()),
    ];
    for (file, content) in contents {
        std::fs::write(folder.join(file), content).expect("a file");
    }
    let rules = root().join("lua-free-rules");
    let here = folder.to_str().expect("text");
    read(name)
        .replace("/etc/deskgate/lua-free-rules", rules.to_str().expect("text"))
        .replace("/etc/deskgate/rules", rules.to_str().expect("text"))
        .replace("/etc/deskgate/secrets/", &format!("{here}/"))
        .replace("/etc/deskgate/", &format!("{here}/"))
}

fn example_config(name: &str) -> Config {
    let folder = tempfile::tempdir().expect("folder");
    load_text(name, &example(name, folder.path()), &[]).unwrap_or_else(|faults| panic!("{name}: {faults:?}"))
}

#[test]
fn example_configurations_pass_check() {
    let names = ["behind-nginx", "fleet", "kubernetes", "production"].map(|name| format!("conf/{name}.toml"));
    let others = ["conf/deskgate.toml", "conf/development.toml"].map(str::to_owned);
    let mut all = [&names[..], &others[..]].concat();
    all.sort();
    assert_eq!(files("conf"), all, "every example is checked");
    for name in names {
        let folder = tempfile::tempdir().expect("folder");
        let file = folder.path().join("deskgate.toml");
        std::fs::write(&file, example(&name, folder.path())).expect("a file");
        let check = Command::new(env!("CARGO_BIN_EXE_deskgate")).arg("check").arg("--config").arg(&file).output();
        let check = check.expect("deskgate check");
        assert!(check.status.success(), "{name}: {}", String::from_utf8_lossy(&check.stderr));
        assert!(String::from_utf8_lossy(&check.stdout).starts_with("ok:"), "{name}");
    }
}

#[test]
fn supervisors_wait_longer_than_the_drain() {
    let needed = |name: &str| {
        let server = example_config(name).server;
        (server.drain_delay.get() + server.drain.get() + CUT).as_secs()
    };
    let grace =
        yaml("deploy/kubernetes/deployment.yaml")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"].as_u64();
    let chart = yaml("deploy/helm/deskgate/values.yaml")["terminationGracePeriodSeconds"].as_u64();
    for (place, seconds) in [("deployment.yaml", grace), ("values.yaml", chart)] {
        assert!(seconds.expect(place) > needed("conf/kubernetes.toml"), "{place}: {seconds:?}");
    }
    let unit = read("deploy/systemd/deskgate.service");
    let timeout = unit.lines().find_map(|line| line.strip_prefix("TimeoutStopSec=")?.parse::<u64>().ok());
    assert!(timeout.expect("TimeoutStopSec") > needed("conf/production.toml"), "the unit: {timeout:?}");
}

#[test]
fn config_map_is_the_example() {
    let manifest = yaml("deploy/kubernetes/configmap.yaml");
    assert_eq!(text(&manifest["data"]["deskgate.toml"], "the file"), read("conf/kubernetes.toml"));
}

/// All objects of the manifests, by kind.
fn manifests() -> BTreeMap<String, Vec<Value>> {
    let mut objects: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for file in files("deploy/kubernetes") {
        let documents = serde_saphyr::from_multiple::<Value>(&read(&file));
        for object in documents.unwrap_or_else(|error| panic!("{file}: {error}")) {
            objects.entry(text(&object["kind"], &file).to_owned()).or_default().push(object);
        }
    }
    objects
}

#[test]
fn pods_are_confined_and_probed_on_the_admin_port() {
    let all = manifests();
    let kinds = [
        "ConfigMap",
        "Deployment",
        "HorizontalPodAutoscaler",
        "Ingress",
        "Namespace",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "Secret",
        "Service",
        "ServiceMonitor",
    ];
    assert_eq!(all.keys().map(String::as_str).collect::<Vec<_>>(), kinds);
    let pod = &all["Deployment"][0]["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let expected = [
        (&pod["automountServiceAccountToken"], json!(false)),
        (&pod["securityContext"]["runAsNonRoot"], json!(true)),
        (&pod["securityContext"]["seccompProfile"]["type"], json!("RuntimeDefault")),
        (&container["securityContext"]["allowPrivilegeEscalation"], json!(false)),
        (&container["securityContext"]["readOnlyRootFilesystem"], json!(true)),
        (&container["securityContext"]["capabilities"]["drop"][0], json!("ALL")),
        (&container["startupProbe"]["httpGet"]["port"], json!("admin")),
        (&container["readinessProbe"]["httpGet"]["path"], json!("/api/ready")),
        (&container["readinessProbe"]["httpGet"]["port"], json!("admin")),
        (&container["livenessProbe"]["httpGet"]["port"], json!("admin")),
    ];
    for (value, expected) in expected {
        assert_eq!(*value, expected);
    }
    let liveness = text(&container["livenessProbe"]["httpGet"]["path"], "a path");
    assert_ne!(liveness, "/api/ready", "a restart does not bring a store back");
    // The ports of the container are those of the configuration.
    let server = example_config("conf/kubernetes.toml").server;
    let ports: Vec<u64> = container["ports"]
        .as_array()
        .expect("ports")
        .iter()
        .filter_map(|port| port["containerPort"].as_u64())
        .collect();
    assert_eq!(ports, [u64::from(server.listen.expect("listeners")[0].port()), u64::from(server.admin_listen.port())]);
}

#[test]
fn user_of_the_pods_is_that_of_the_image() {
    let container_file = read("deploy/Containerfile");
    let user = container_file.lines().find_map(|line| line.strip_prefix("USER ")).expect("a user");
    let pod = &manifests()["Deployment"][0]["spec"]["template"]["spec"]["securityContext"];
    for key in ["runAsUser", "runAsGroup", "fsGroup"] {
        assert_eq!(pod[key].as_u64().map(|id| id.to_string()).as_deref(), Some(user), "{key}");
    }
    assert!(
        container_file.contains(r#"ARG FEATURES="""#)
            && container_file.contains(r#"make release FEATURES="$FEATURES""#)
    );
    assert!(read("Makefile").contains(r#"deploy/release.py $(TARGET) --features "$(FEATURES)""#));
    assert!(read("deploy/release.py").contains(r#""--no-default-features", "--features", features"#));
}

#[test]
fn containers_of_the_compose_file_have_a_read_only_root() {
    let compose = yaml("deploy/compose.yaml");
    for name in ["gateway-1", "gateway-2", "gateway-3", "services"] {
        let service = &compose["services"][name];
        assert_eq!(service["read_only"].as_bool(), Some(true), "{name}");
        assert_eq!(service["cap_drop"][0].as_str(), Some("ALL"), "{name}");
        assert_eq!(service["security_opt"][0].as_str(), Some("no-new-privileges:true"), "{name}");
        let writable = service["tmpfs"][0].as_str().expect("a place to write");
        assert!(writable.starts_with("/var/lib/deskgate:"), "{name}: {writable}");
    }
}

#[test]
fn versions_of_chart_and_image_are_that_of_the_program() {
    let chart = yaml("deploy/helm/deskgate/Chart.yaml");
    assert_eq!(text(&chart["version"], "a version"), env!("CARGO_PKG_VERSION"));
    assert_eq!(text(&chart["appVersion"], "a version"), env!("CARGO_PKG_VERSION"));
    let image = manifests()["Deployment"][0]["spec"]["template"]["spec"]["containers"][0]["image"].clone();
    assert!(text(&image, "an image").ends_with(concat!(":", env!("CARGO_PKG_VERSION"))), "{image:?}");
}

#[test]
fn values_of_the_chart_have_a_schema() {
    let schema: Value = serde_json::from_str(&read("deploy/helm/deskgate/values.schema.json")).expect("JSON");
    let schema = jsonschema::validator_for(&schema).expect("a schema");
    let values = yaml("deploy/helm/deskgate/values.yaml");
    let faults: Vec<String> = schema.iter_errors(&values).map(|error| error.to_string()).collect();
    assert!(faults.is_empty(), "{faults:?}");
    for (what, wrong) in [
        ("an unknown value", json!({ "replica": 3 })),
        ("an unknown value in a section", json!({ "image": { "name": "deskgate" } })),
        ("a value of another type", json!({ "replicas": "three" })),
        ("no gateway", json!({ "replicas": 0 })),
        ("a rule file that the gateway does not read", json!({ "rules": { "desk.yaml": "x" } })),
    ] {
        assert!(!schema.is_valid(&wrong), "{what}");
    }
    // What the values and the templates name is the same.
    let templates: String = files("deploy/helm/deskgate/templates").iter().map(|file| read(file)).collect();
    for name in values.as_object().expect("values").keys() {
        assert!(templates.contains(&format!(".Values.{name}")), "no template uses {name}");
    }
    let used =
        templates.split(".Values.").skip(1).filter_map(|rest| rest.split(|c: char| !c.is_ascii_alphanumeric()).next());
    for name in used {
        assert!(values.get(name).is_some(), "values.yaml has no {name}");
    }
}

/// The links of the chart lead to the files of the repository, so that there is one copy of each.
#[test]
fn files_of_the_chart_are_those_of_the_repository() {
    for (link, target) in [
        ("deskgate.toml", "conf/kubernetes.toml"),
        ("rules", "lua-free-rules"),
        ("alerts.yaml", "deploy/prometheus/alerts.yaml"),
        ("recording.yaml", "deploy/prometheus/recording.yaml"),
        ("dashboard.json", "deploy/grafana/deskgate.json"),
    ] {
        let link = root().join("deploy/helm/deskgate/files").join(link);
        assert_eq!(link.canonicalize().expect("a link"), root().join(target).canonicalize().expect("a file"));
    }
}
