//! Checks the documentation against the program: reference configuration, tables, examples, links, translations.

// A failed expectation is the test's result.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use demo::Demo;
use deskgate::config::{Config, UpstreamConfig, UpstreamTlsConfig, load, load_text};
use deskgate::endpoints::TABLE;

#[path = "servers/demo.rs"]
mod demo;

const REFERENCE: &str = include_str!("../conf/deskgate.toml");

/// The address that console blocks use; the tests run the demo on a free port instead.
const DEMO_ADDRESS: &str = "127.0.0.1:8080";

/// Pages that exist in both languages, English first.
const TRANSLATIONS: [(&str, &str); 7] = [
    ("README.md", "README.zh-CN.md"),
    ("docs/tutorial.md", "docs/zh-CN/tutorial.md"),
    ("docs/sign-in.md", "docs/zh-CN/sign-in.md"),
    ("docs/rules.md", "docs/zh-CN/rules.md"),
    ("docs/operations.md", "docs/zh-CN/operations.md"),
    ("docs/fleet.md", "docs/zh-CN/fleet.md"),
    ("docs/runbook.md", "docs/zh-CN/runbook.md"),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

struct Page {
    /// Path relative to the repository, such as `docs/rules.md`.
    name: String,
    text: String,
}

/// A fenced block: its language, the `key=value` words behind it, and its lines.
struct Block {
    language: String,
    attributes: BTreeMap<String, String>,
    text: String,
}

struct Heading {
    level: usize,
    /// The `<a id="…">` in the heading, otherwise the anchor that GitHub derives from its text.
    id: String,
}

impl Page {
    fn read(name: &str) -> Self {
        let text = std::fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        Self { name: name.to_owned(), text }
    }

    fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut lines = self.text.lines();
        while let Some(line) = lines.next() {
            let Some(info) = line.strip_prefix("```") else { continue };
            let mut words = info.split_whitespace();
            let language = words.next().unwrap_or_default().to_owned();
            let attributes = words.filter_map(|word| word.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned()));
            let attributes = attributes.collect();
            let text = lines.by_ref().take_while(|line| *line != "```").map(|line| format!("{line}\n")).collect();
            blocks.push(Block { language, attributes, text });
        }
        blocks
    }

    /// The lines outside fenced blocks.
    fn prose(&self) -> Vec<&str> {
        let mut fenced = false;
        let is_prose = |line: &&str| {
            let fence = line.starts_with("```");
            fenced ^= fence;
            !fenced && !fence
        };
        self.text.lines().filter(is_prose).collect()
    }

    fn headings(&self) -> Vec<Heading> {
        let heading = |line: &str| {
            let level = line.bytes().take_while(|byte| *byte == b'#').count();
            let text = line[level..].strip_prefix(' ').filter(|_| level > 0)?;
            let explicit = text.split_once("<a id=\"").and_then(|(_, rest)| rest.split('"').next());
            Some(Heading { level, id: explicit.map_or_else(|| slug(text), str::to_owned) })
        };
        self.prose().into_iter().filter_map(heading).collect()
    }

    /// The targets of all links and pictures.
    fn links(&self) -> Vec<&str> {
        self.prose()
            .into_iter()
            .flat_map(|line| line.split("](").skip(1))
            .filter_map(|rest| rest.split(')').next())
            .collect()
    }
}

/// The anchor that GitHub gives a heading.
fn slug(text: &str) -> String {
    let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Every page of the documentation, in both languages.
fn pages() -> Vec<Page> {
    let mut names = BTreeSet::new();
    for folder in ["", "docs", "docs/zh-CN"] {
        let Ok(entries) = std::fs::read_dir(root().join(folder)) else { continue };
        let files = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.extend(files.filter(|file| file.ends_with(".md")).map(|file| format!("{folder}/{file}")));
    }
    names.iter().map(|name| Page::read(name.trim_start_matches('/'))).collect()
}

/// `section.key` to value, for every leaf.
fn leaves(prefix: &str, value: &toml::Value, out: &mut BTreeMap<String, String>) {
    match value {
        toml::Value::Table(table) => {
            for (key, value) in table {
                let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
                leaves(&path, value, out);
            }
        }
        value => {
            out.insert(prefix.to_owned(), value.to_string());
        }
    }
}

fn keys_of(text: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    leaves("", &toml::from_str(text).expect("TOML"), &mut found);
    found
}

/// The defaults of an upstream named `name`, which has one address.
fn upstream_defaults(name: &str) -> BTreeMap<String, String> {
    let upstream = UpstreamConfig {
        addresses: vec!["127.0.0.1:8000".parse().expect("address")],
        tls: Some(UpstreamTlsConfig::default()),
        ..Default::default()
    };
    let config = Config { upstreams: BTreeMap::from([(name.to_owned(), upstream)]), ..Config::default() };
    let all = keys_of(&toml::to_string(&config).expect("TOML"));
    all.into_iter().filter(|(key, _)| key.starts_with("upstreams.")).collect()
}

#[test]
fn reference_file_lists_every_key_with_its_default() {
    let defaults = keys_of(&toml::to_string(&Config::default()).expect("TOML"));
    assert_eq!(keys_of(REFERENCE), defaults);
}

#[test]
fn reference_file_lists_every_upstream_key_with_its_default() {
    let start = REFERENCE.find("# [upstreams.helpdesk]").expect("an example upstream");
    let uncommented: String = REFERENCE[start..]
        .lines()
        .filter_map(|line| line.strip_prefix("# "))
        .filter(|line| line.starts_with('[') || line.split_once(" = ").is_some_and(|(key, _)| !key.contains(' ')))
        .map(|line| format!("{line}\n"))
        .collect();
    assert_eq!(keys_of(&uncommented), upstream_defaults("helpdesk"));
}

/// The keys of the lists in `[server]`, whose entries have settings of their own: `[[server.listeners]]` and others.
fn list_keys() -> BTreeMap<String, BTreeSet<String>> {
    let text = "[[server.listeners]]\naddress = \"127.0.0.1:1\"\ntls = true\n\
                [[server.certificates]]\ncert_file = \"a\"\nkey_file = \"b\"\n\
                [platform]\ncorp_id = \"ww1\"\nsecret = \"s\"\n";
    let config = load_text("lists.toml", text, &[]).expect("valid");
    let table: toml::Table = toml::from_str(&toml::to_string(&config).expect("TOML")).expect("TOML");
    let keys = |list: &str| -> BTreeSet<String> {
        table["server"][list][0].as_table().expect("an entry").keys().cloned().collect()
    };
    ["listeners", "certificates"].map(|list| (format!("[server.{list}]"), keys(list))).into()
}

#[test]
fn reference_file_lists_every_key_of_lists() {
    let mut listed: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut list = None;
    for line in REFERENCE.lines() {
        let line = line.strip_prefix("# ").unwrap_or_default();
        if let Some(name) =
            line.strip_prefix('[').and_then(|line| line.strip_suffix(']')).filter(|n| n.starts_with('['))
        {
            list = Some(name.to_owned());
        } else if let (Some(list), Some((key, _))) = (&list, line.split_once(" = ")) {
            listed.entry(list.clone()).or_default().insert(key.to_owned());
        } else {
            list = None;
        }
    }
    assert_eq!(listed, list_keys());
}

/// Whether a line of the reference file belongs to an entry of a list.
fn outside_lists(lines: impl Iterator<Item = &'static str>) -> impl Iterator<Item = &'static str> {
    let mut in_list = false;
    lines.filter(move |line| {
        in_list = line.starts_with("# [[") || in_list && line.starts_with("# ");
        !in_list
    })
}

#[test]
fn reference_file_comments_every_key() {
    let mut commented = false;
    for (number, line) in REFERENCE.lines().enumerate() {
        let is_key = !line.starts_with('#') && line.contains(" = ");
        // The three clients share one comment.
        let shares = line.starts_with("itagent = ") || line.starts_with("itadmin = ");
        assert!(!is_key || commented || shares, "line {} has no comment above it: {line}", number + 1);
        commented = line.starts_with('#');
    }
}

#[test]
fn configuration_page_lists_every_key_with_its_default() {
    let page = Page::read("docs/configuration.md");
    let (mut section, mut listed, mut unset) = (String::new(), BTreeMap::new(), BTreeSet::new());
    let mut in_lists: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in page.prose() {
        if let Some(name) = line.strip_prefix("## `[").and_then(|rest| rest.strip_suffix("]`")) {
            section = name.to_owned();
        } else if let Some(row) = line.strip_prefix("| `") {
            let (key, rest) = row.split_once("` | ").expect("a key and its default");
            let (default, meaning) = rest.split_once(" | ").expect("a default and its meaning");
            assert!(meaning.len() > " |".len(), "{section}.{key} has no meaning");
            if section.starts_with('[') {
                in_lists.entry(section.clone()).or_default().insert(key.to_owned());
                continue;
            }
            match default.strip_prefix('`').and_then(|default| default.strip_suffix('`')) {
                Some(default) => listed.extend(keys_of(&format!("[{section}]\n{key} = {default}\n"))),
                None => assert!(unset.insert(key.to_owned()), "{key} is listed twice"),
            }
        }
    }
    assert_eq!(in_lists, list_keys());
    let mut expected = keys_of(REFERENCE);
    expected.extend(upstream_defaults("NAME"));
    expected.insert("upstreams.NAME.addresses".to_owned(), "[]".to_owned());
    assert_eq!(listed, expected);
    let (settings, upstream) = REFERENCE.split_once("# [upstreams.helpdesk]").expect("an example upstream");
    let without_default = outside_lists(settings.lines()).filter_map(|line| line.strip_prefix("# "));
    let of_upstream = upstream.lines().filter_map(|line| line.strip_prefix("# # "));
    let commented: BTreeSet<String> = without_default
        .chain(of_upstream)
        .filter_map(|line| Some(line.split_once(" = ")?.0.to_owned()))
        .filter(|key| key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'))
        .collect();
    assert_eq!(unset, commented, "keys without a default");
}

#[test]
fn example_configurations_are_valid() {
    let development = load(Some(&root().join("conf/development.toml")), &[]).expect("valid");
    assert!(development.rules.dir.join("matrix.toml").exists(), "{:?}", development.rules.dir);
    let secret = tempfile::NamedTempFile::new().expect("file");
    let secret = secret.path().to_str().expect("text");
    let production = include_str!("../conf/production.toml").replace("/etc/deskgate/wecom.secret", secret);
    let config = load_text("production.toml", &production, &[]).expect("valid");
    assert_eq!(config.bind.proof, deskgate::config::BindProof::Platform);
    let fleet = ["wecom.secret", "redis.password", "postgres.password", "secret"]
        .iter()
        .fold(include_str!("../conf/fleet.toml").to_owned(), |text, file| {
            text.replace(&format!("/etc/deskgate/{file}\""), &format!("{secret}\""))
        });
    let config = load_text("fleet.toml", &fleet, &[]).expect("valid");
    assert!(config.store.is_shared() && config.directory.is_shared() && !config.uses_data_dir());
    for name in ["README.md", "README.zh-CN.md"] {
        let example = Page::read(name).blocks().into_iter().find(|block| block.language == "toml").expect("an example");
        let text = example.text.replace("/etc/deskgate/wecom.secret", secret);
        load_text(name, &text, &[]).unwrap_or_else(|faults| panic!("{faults:?}"));
    }
}

#[test]
fn api_page_lists_every_endpoint() {
    let page = Page::read("docs/api.md");
    for row in TABLE.iter().filter(|row| !row.path.ends_with(".css") && !row.path.ends_with(".js")) {
        let entry = format!("{} `{}`", row.method, row.path);
        assert!(page.text.lines().any(|line| line.contains(&entry)), "{entry} is missing");
    }
}

#[test]
fn api_page_lists_every_error_code() {
    let description: serde_json::Value =
        serde_json::from_str(include_str!("../src/api/openapi.json")).expect("a JSON document");
    let codes = description["components"]["schemas"]["ErrorCode"]["oneOf"].as_array().expect("codes");
    let expected: BTreeSet<u64> = codes.iter().map(|code| code["const"].as_u64().expect("a number")).collect();
    let page = Page::read("docs/api.md");
    let table =
        page.text.split("## Error codes").nth(1).expect("the section").split("\n## ").next().expect("the section");
    let rows = table.lines().filter_map(|line| line.strip_prefix("| ")?.split(' ').next()?.parse().ok());
    assert_eq!(rows.collect::<BTreeSet<u64>>(), expected);
}

#[test]
fn pages_name_only_make_targets_that_exist() {
    let makefile = include_str!("../Makefile");
    for page in pages() {
        for target in page.text.split("`make ").skip(1).filter_map(|rest| rest.split('`').next()) {
            let exists = makefile.lines().any(|line| line.starts_with(&format!("{target}:")));
            assert!(exists, "{}: make {target}", page.name);
        }
    }
}

#[test]
fn the_benchmark_can_write_its_page() {
    let mut tests = Command::new("python3");
    tests.arg(root().join("benches/test_compare.py")).env("DESKGATE", env!("CARGO_BIN_EXE_deskgate"));
    let output = tests.output().expect("python3");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn rule_examples_pass_their_own_cases() {
    for name in ["docs/rules.md", "docs/zh-CN/rules.md"] {
        let page = Page::read(name);
        let folder = tempfile::tempdir().expect("folder");
        std::fs::copy(root().join("lua-free-rules/matrix.toml"), folder.path().join("matrix.toml")).expect("matrix");
        let examples: String = page
            .blocks()
            .into_iter()
            .filter(|block| block.language == "toml" && block.text.contains("[[rule]]"))
            .map(|block| block.text)
            .collect();
        assert!(examples.contains("[[case]]"), "{name} has examples with cases");
        std::fs::write(folder.path().join("examples.toml"), examples).expect("rules");
        let config = folder.path().join("deskgate.conf");
        let text =
            include_str!("../conf/development.toml").replace("../lua-free-rules", ".").replace("../data", "data");
        std::fs::write(&config, text).expect("configuration");
        let check = Command::new(env!("CARGO_BIN_EXE_deskgate")).arg("check").arg("--config").arg(&config).output();
        let check = check.expect("deskgate check");
        assert!(check.status.success(), "{name}: {}", String::from_utf8_lossy(&check.stderr));
    }
}

#[test]
fn links_between_pages_resolve() {
    let mut broken = Vec::new();
    for page in pages() {
        let ids: Vec<String> = page.headings().into_iter().map(|heading| heading.id).collect();
        let unique: BTreeSet<&String> = ids.iter().collect();
        assert_eq!(unique.len(), ids.len(), "{}: two headings have the same anchor: {ids:?}", page.name);
        for link in page.links().into_iter().filter(|link| !link.contains("://")) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { page.name.clone() } else { resolve(&page.name, path) };
            let exists = root().join(&target).exists();
            let has_anchor =
                || anchor.is_empty() || Page::read(&target).headings().iter().any(|heading| heading.id == anchor);
            if !exists || !has_anchor() {
                broken.push(format!("{}: {link}", page.name));
            }
        }
    }
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

/// A link's target relative to the repository.
fn resolve(page: &str, link: &str) -> String {
    let mut target = PathBuf::from(page);
    target.pop();
    for part in link.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => assert!(target.pop(), "{page}: {link} leaves the repository"),
            part => target.push(part),
        }
    }
    target.to_str().expect("text").to_owned()
}

/// A translated heading carries the anchor of its English one: `## 快速开始 <a id="run-it"></a>`.
#[test]
fn translated_pages_have_the_same_headings() {
    let mut differences = Vec::new();
    for (english, translated) in TRANSLATIONS {
        let outline = |page: &Page| -> Vec<String> {
            page.headings().iter().map(|heading| format!("{} {}", "#".repeat(heading.level), heading.id)).collect()
        };
        let (original, translation) = (outline(&Page::read(english)), outline(&Page::read(translated)));
        let only = |these: &[String], others: &[String]| -> Vec<String> {
            these.iter().filter(|heading| !others.contains(heading)).cloned().collect()
        };
        let (missing, extra) = (only(&original, &translation), only(&translation, &original));
        if !missing.is_empty() || !extra.is_empty() {
            differences.push(format!("only in {english}: {missing:?}; only in {translated}: {extra:?}"));
        } else if original != translation {
            differences.push(format!("{english} and {translated} have their headings in a different order"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// Comments may be translated; everything else in a fenced block is the same in both languages.
#[test]
fn translated_pages_have_the_same_blocks() {
    for (english, translated) in TRANSLATIONS {
        let blocks = |name: &str| -> Vec<String> {
            let without_comment = |line: &str| match line.split_once(" # ") {
                Some((code, _)) => code.trim_end().to_owned(),
                None => line.to_owned(),
            };
            let uncommented = |block: Block| block.text.lines().map(without_comment).collect::<Vec<_>>().join("\n");
            Page::read(name).blocks().into_iter().map(uncommented).collect()
        };
        let (original, translation) = (blocks(english), blocks(translated));
        assert_eq!(original.len(), translation.len(), "{english} and {translated} have a different number of blocks");
        for (original, translation) in original.iter().zip(&translation) {
            assert_eq!(original, translation, "a block differs between {english} and {translated}");
        }
    }
}

/// A command of a console block and the output that the page shows for it.
struct Step {
    command: String,
    expected: String,
}

/// The commands of a page's console blocks. Blocks that require a program which is not installed are left out.
fn steps(page: &Page) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for block in page.blocks().into_iter().filter(|block| block.language == "console") {
        if let Some(program) = block.attributes.get("requires")
            && !is_installed(program)
        {
            eprintln!("{}: skipped the block that requires {program}", page.name);
            continue;
        }
        for line in block.text.lines() {
            if let Some(command) = line.strip_prefix("$ ") {
                steps.push(Step { command: command.to_owned(), expected: String::new() });
            } else if let Some(step) = steps.last_mut().filter(|_| block.text.starts_with("$ ")) {
                step.expected.push_str(line);
                step.expected.push('\n');
            }
        }
    }
    steps
}

fn is_installed(program: &str) -> bool {
    let probe: &[&str] = match program {
        "pyjwt" => &["python3", "-c", "import jwt, cryptography"],
        "node" => &["node", "--version"],
        "go" => &["go", "version"],
        other => panic!("no probe for {other}"),
    };
    let run = Command::new(probe[0]).args(&probe[1..]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    run.is_ok_and(|status| status.success())
}

/// Whether the output matches, where `…` in `expected` stands for any text.
fn matches(expected: &str, output: &str) -> bool {
    let mut parts = expected.split('…');
    let Some(mut rest) = parts.next().and_then(|start| output.strip_prefix(start)) else { return false };
    let parts: Vec<&str> = parts.collect();
    for (index, part) in parts.iter().enumerate() {
        let found = if index + 1 == parts.len() {
            rest.strip_suffix(part).map(|_| rest.len() - part.len())
        } else {
            rest.find(part)
        };
        let Some(position) = found else { return false };
        rest = &rest[position + part.len()..];
    }
    rest.is_empty()
}

/// Runs a script as a user would in a terminal beside the demo.
fn run(script: &str, folder: &Path, demo: &Demo) -> String {
    let listen = demo.printed("listen");
    let script = format!("exec 2>&1\n{}", script.replace(DEMO_ADDRESS, listen));
    let programs = Path::new(env!("CARGO_BIN_EXE_deskgate")).parent().expect("a folder");
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").expect("a path"));
    let mut bash = Command::new("bash");
    bash.args(["-c", &script]).current_dir(folder).env("PATH", path).stdin(Stdio::null());
    let output = bash.env("DESKGATE_CONFIG", demo.printed("DESKGATE_CONFIG")).output().expect("bash");
    String::from_utf8(output.stdout).expect("text").replace(listen, DEMO_ADDRESS)
}

/// Runs a page's commands beside a new demo and describes every output that differs.
fn run_page(page: &Page, steps: &[Step]) -> Vec<String> {
    let folder = tempfile::tempdir().expect("folder");
    let demo = Demo::start(folder.path());
    for block in page.blocks() {
        if let Some(file) = block.attributes.get("file") {
            let text = block.text.replace(DEMO_ADDRESS, demo.printed("listen"));
            std::fs::write(folder.path().join(file), text).expect("a file");
        }
    }
    let script: String = steps.iter().map(|step| format!("{}\nprintf '\\n--step--\\n'\n", step.command)).collect();
    let printed = run(&script, folder.path(), &demo);
    let outputs: Vec<&str> = printed.split("\n--step--\n").collect();
    assert_eq!(outputs.len(), steps.len() + 1, "{}: every command runs; printed:\n{printed}", page.name);
    let differs = |(step, output): &(&Step, &str)| !matches(step.expected.trim_end(), output.trim_end());
    let differing = steps.iter().zip(outputs).filter(differs);
    differing
        .map(|(step, output)| {
            format!("{}: $ {}\nexpected {}\nprinted  {output}", page.name, step.command, step.expected)
        })
        .collect()
}

#[test]
fn console_blocks_print_what_the_pages_show() {
    let pages: Vec<(Page, Vec<Step>)> = pages()
        .into_iter()
        .map(|page| {
            let steps = steps(&page);
            (page, steps)
        })
        .filter(|(_, steps)| !steps.is_empty())
        .collect();
    let names: Vec<&str> = pages.iter().map(|(page, _)| page.name.as_str()).collect();
    for required in ["README.md", "docs/tutorial.md", "docs/rules.md", "docs/operations.md", "docs/upstreams.md"] {
        assert!(names.contains(&required), "{required} has commands");
    }
    let differences: Vec<String> = pages.iter().flat_map(|(page, steps)| run_page(page, steps)).collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
