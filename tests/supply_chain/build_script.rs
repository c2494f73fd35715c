//! `build.rs`: the commit and the time that are compiled into the program.

use std::path::Path;
use std::process::Command;

use crate::cargo::{output, repository};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// Compiles the build script into a folder.
fn compile(folder: &Path) -> std::path::PathBuf {
    let program = folder.join("build-script");
    let mut rustc = Command::new("rustc");
    output(rustc.args(["--edition", "2024", "-o"]).arg(&program).arg(repository().join("build.rs")));
    program
}

fn git(folder: &Path, arguments: &[&str]) -> String {
    let mut git = Command::new("git");
    git.current_dir(folder).args(["-c", "user.name=test", "-c", "user.email=test@example.com"]).args(arguments);
    output(&mut git).trim().to_owned()
}

/// What the build script sets for the compiler when it runs in a folder.
fn variable(program: &Path, folder: &Path, environment: &[(&str, &str)], name: &str) -> String {
    let mut command = Command::new(program);
    command.current_dir(folder).env_remove("DESKGATE_COMMIT").env_remove("SOURCE_DATE_EPOCH");
    // Nothing above the folders of this test is a repository of theirs.
    command.env("GIT_CEILING_DIRECTORIES", folder.parent().and_then(Path::parent).expect("a folder"));
    let text = output(command.envs(environment.iter().copied()));
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("cargo:rustc-env={name}=")));
    line.unwrap_or_else(|| panic!("{name} is not set: {text}")).to_owned()
}

#[test]
fn the_commit_comes_from_the_environment_or_from_the_own_repository() {
    let work = tempfile::tempdir().expect("a folder");
    let program = compile(work.path());
    let (archive, clone) = (work.path().join("archive"), work.path().join("clone"));
    let nested = clone.join("unpacked");
    for folder in [&archive, &nested] {
        std::fs::create_dir_all(folder).expect("a folder");
    }
    git(&clone, &["init", "--quiet"]);
    git(&clone, &["commit", "--quiet", "--allow-empty", "--message", "first"]);
    let head = git(&clone, &["rev-parse", "HEAD"]);

    let commit =
        |folder: &Path, environment: &[(&str, &str)]| variable(&program, folder, environment, "DESKGATE_COMMIT");
    assert_eq!(commit(&clone, &[]), head[..12], "a clone");
    assert_eq!(commit(&archive, &[]), "unknown", "an archive");
    assert_eq!(commit(&nested, &[]), "unknown", "an archive inside of another repository");
    assert_eq!(commit(&archive, &[("DESKGATE_COMMIT", COMMIT)]), COMMIT[..12], "an archive, by the environment");
    assert_eq!(commit(&clone, &[("DESKGATE_COMMIT", COMMIT)]), COMMIT[..12], "the environment decides");
    assert_eq!(commit(&clone, &[("DESKGATE_COMMIT", "")]), head[..12], "an empty variable");
}

#[test]
fn the_time_of_the_build_can_be_set() {
    let work = tempfile::tempdir().expect("a folder");
    let program = compile(work.path());
    let built = |environment: &[(&str, &str)]| variable(&program, work.path(), environment, "DESKGATE_BUILT");
    assert_eq!(built(&[("SOURCE_DATE_EPOCH", "1700000000")]), "1700000000");
    assert!(built(&[]).parse::<u64>().is_ok_and(|seconds| seconds > 1_700_000_000));
}
