//! The documents are true: every key is in `conf/deskgate.toml` with its default, and the README's
//! tables and commands are those of the program.

// A test may fail loudly; that is what it is for.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;

use deskgate::config::{Config, UpstreamConfig, load_text};
use deskgate::endpoints::TABLE;

const REFERENCE: &str = include_str!("../conf/deskgate.toml");
const README: &str = include_str!("../README.md");

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

#[test]
fn every_key_is_in_the_reference_file_with_its_default() {
    let defaults = keys_of(&toml::to_string(&Config::default()).expect("TOML"));
    assert_eq!(keys_of(REFERENCE), defaults);
}

#[test]
fn every_key_of_an_upstream_is_in_the_reference_file_with_its_default() {
    let start = REFERENCE.find("# [upstreams.helpdesk]").expect("an example upstream");
    let uncommented: String = REFERENCE[start..]
        .lines()
        .filter_map(|line| line.strip_prefix("# "))
        .filter(|line| line.starts_with('[') || line.split_once(" = ").is_some_and(|(key, _)| !key.contains(' ')))
        .map(|line| format!("{line}\n"))
        .collect();
    let upstream = UpstreamConfig { addresses: vec!["127.0.0.1:8000".parse().expect("address")], ..Default::default() };
    let config = Config { upstreams: BTreeMap::from([("helpdesk".to_owned(), upstream)]), ..Config::default() };
    let expected: BTreeMap<_, _> = keys_of(&toml::to_string(&config).expect("TOML"))
        .into_iter()
        .filter(|(key, _)| key.starts_with("upstreams."))
        .collect();
    assert_eq!(keys_of(&uncommented), expected);
}

#[test]
fn every_key_of_the_reference_file_has_a_comment() {
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
fn the_example_files_are_sound() {
    let development = include_str!("../conf/development.toml");
    load_text("development.toml", development, &[]).expect("sound");
    let secret = tempfile::NamedTempFile::new().expect("file");
    let production = include_str!("../conf/production.toml")
        .replace("/etc/deskgate/wecom.secret", secret.path().to_str().expect("text"));
    let config = load_text("production.toml", &production, &[]).expect("sound");
    assert_eq!(config.bind.proof, deskgate::config::BindProof::Platform);
}

#[test]
fn the_readme_lists_every_endpoint() {
    for row in TABLE.iter().filter(|row| !row.path.ends_with(".css") && !row.path.ends_with(".js")) {
        let listed = README.lines().any(|line| line.contains(&format!("{} `{}`", row.method, row.path)));
        assert!(listed, "{} {}", row.method, row.path);
    }
}

#[test]
fn the_readme_lists_every_section_of_the_configuration() {
    let sections: Vec<String> =
        keys_of(REFERENCE).into_keys().filter_map(|key| Some(key.split_once('.')?.0.to_owned())).collect();
    for section in sections {
        assert!(README.contains(&format!("`[{section}]`")), "{section}");
    }
}

#[test]
fn the_readme_names_make_targets_that_exist() {
    let makefile = include_str!("../Makefile");
    for target in README.split("`make ").skip(1).filter_map(|rest| rest.split('`').next()) {
        assert!(makefile.lines().any(|line| line.starts_with(&format!("{target}:"))), "make {target}");
    }
}

/// The commands of the README's console blocks and what they print.
fn transcript() -> Vec<(String, String)> {
    let mut steps: Vec<(String, String)> = Vec::new();
    for block in README.split("```console\n").skip(1) {
        let block = block.split("```").next().expect("closed");
        for line in block.lines() {
            if let Some(command) = line.strip_prefix("$ ") {
                steps.push((command.to_owned(), String::new()));
            } else if let Some((_, expected)) = steps.last_mut() {
                expected.push_str(line);
                expected.push('\n');
            }
        }
    }
    steps
}

/// Whether a text is what was expected, `…` standing for anything.
fn fits(expected: &str, printed: &str) -> bool {
    let mut parts = expected.split('…');
    let Some(mut rest) = parts.next().and_then(|start| printed.strip_prefix(start)) else { return false };
    let parts: Vec<&str> = parts.collect();
    for (index, part) in parts.iter().enumerate() {
        let found = if index + 1 == parts.len() {
            rest.strip_suffix(part).map(|_| rest.len() - part.len())
        } else {
            rest.find(part)
        };
        let Some(place) = found else { return false };
        rest = &rest[place + part.len()..];
    }
    rest.is_empty()
}

#[test]
fn the_readme_transcript_is_what_really_comes_back() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    let folder = tempfile::tempdir().expect("folder");
    let mut demo = Command::new(env!("CARGO_BIN_EXE_deskgate"))
        .args(["demo", "--listen", "127.0.0.1:0"])
        .env("TMPDIR", folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("start");
    let mut lines = BufReader::new(demo.stdout.take().expect("output")).lines().map_while(Result::ok);
    let config = lines.find_map(|line| Some(line.split_once("export DESKGATE_CONFIG=")?.1.to_owned())).expect("a file");
    let ready = lines.find(|line| line.starts_with("ready ")).expect("ready");
    let listen = ready.split(' ').find_map(|part| part.strip_prefix("listen=")).expect("address").to_owned();

    let steps = transcript();
    assert!(steps.len() > 20, "the transcript is there");
    let script: String = steps.iter().map(|(command, _)| format!("{command}\nprintf '\\n--step--\\n'\n")).collect();
    // As a terminal shows it.
    let script = format!("exec 2>&1\n{}", script.replace("127.0.0.1:8080", &listen));
    let programs = Path::new(env!("CARGO_BIN_EXE_deskgate")).parent().expect("a folder");
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").expect("a path"));
    let mut bash = Command::new("bash");
    let bash = bash.args(["-c", &script]).current_dir(folder.path()).env("PATH", path).env("DESKGATE_CONFIG", config);
    let run = bash.output().expect("bash");
    let printed = String::from_utf8(run.stdout).expect("text").replace(&listen, "127.0.0.1:8080");
    demo.kill().expect("stop");
    demo.wait().expect("stopped");

    let outputs: Vec<&str> = printed.split("\n--step--\n").collect();
    for ((command, expected), output) in steps.iter().zip(outputs) {
        assert!(fits(expected.trim_end(), output.trim_end()), "$ {command}\nexpected {expected}\nprinted  {output}");
    }
}

#[test]
fn the_explanations_of_the_readme_are_what_the_program_says() {
    let readme = std::fs::read_to_string(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md"))
        .expect("the README");
    let mut compared = 0;
    for block in readme.split("```text\n$ deskgate explain ").skip(1) {
        let (command, rest) = block.split_once('\n').expect("a command");
        let shown = rest.split("\n```").next().expect("an end");
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_deskgate"))
            .arg("explain")
            .args(command.split_whitespace())
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .expect("the program");
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim_end(), shown, "{command}");
        compared += 1;
    }
    assert_eq!(compared, 3);
}
