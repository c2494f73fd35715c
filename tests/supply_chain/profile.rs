//! The profile that `make release` optimizes with.

use std::process::Command;

use crate::cargo::{output, read, repository};

/// What a script prints that uses `deploy/release.py` and has a folder of its own.
fn release(script: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let prelude = "import pathlib, sys; sys.dont_write_bytecode = True; sys.path.insert(0, sys.argv[1]); import release; \
                   folder = pathlib.Path(sys.argv[2])\n";
    let mut python = Command::new("python3");
    python.args(["-c", &format!("{prelude}{script}")]).arg(repository().join("deploy")).arg(folder.path());
    output(&mut python)
}

/// `rustc -vV` of some version, as Python.
fn compiler(version: &str) -> String {
    format!(
        "release.Compiler('release: {version}\\nhost: x86_64-unknown-linux-gnu\\nLLVM version: 1.2.3\\ncommit-hash: 0a1b\\n')"
    )
}

/// Else the image would be built without it, about a tenth slower.
#[test]
fn there_is_a_profile_for_the_compiler_of_the_image() {
    let container_file = read("deploy/Containerfile");
    let version =
        container_file.split("FROM rust:").nth(1).and_then(|image| image.split('-').next()).expect("a version");
    let printed = release(&format!(
        "import lzma
for file in release.PROFILES.glob({}.profiles()):
    print(lzma.decompress(file.read_bytes())[:8], file.stat().st_size < 1_500_000)",
        compiler(version)
    ));
    // One, and an indexed profile of LLVM begins so.
    assert_eq!(printed, "b'\\xfflprofi\\x81' True\n");
}

#[test]
fn profile_that_does_not_match_is_reported() {
    let table = [
        (
            "1.2.3",
            "'rustc-1.2.3-x86_64-unknown-linux-gnu-other.profdata.xz'",
            " was recorded with other dependencies or settings",
        ),
        ("9.9.9", "None", "No profile for rustc 9.9.9 on x86_64-unknown-linux-gnu: building without it."),
    ];
    for (version, found, said) in table {
        let printed = release(&format!(
            "import contextlib, io
release.PROFILES = folder
(folder / 'rustc-1.2.3-x86_64-unknown-linux-gnu-other.profdata.xz').touch()
said = io.StringIO()
with contextlib.redirect_stderr(said):
    found = release.find_profile({})
print(repr(found and found.name), {said:?} in said.getvalue())",
            compiler(version)
        ));
        assert_eq!(printed, format!("{found} True\n"), "{version}");
    }
}

#[test]
fn profile_matches_one_compiler_with_one_set_of_features() {
    let printed = release(&format!(
        "import contextlib, io
release.PROFILES, said = folder, io.StringIO()
one = {compiler}
other = release.Compiler(one.description.replace('0a1b', '2c3d'))
one.profile_file().touch()
with contextlib.redirect_stderr(said):
    print(release.find_profile(one) == one.profile_file(), repr(said.getvalue()))
print(len({{one.profile_file(), one.profile_file('demo'), other.profile_file()}}))",
        compiler = compiler("1.2.3")
    ));
    assert_eq!(printed, "True ''\n3\n");
}

#[test]
fn flags_of_the_environment_are_kept() {
    let printed = release(
        "import os
for given in ({}, {'RUSTFLAGS': '-C a'}, {'RUSTFLAGS': '-C a', 'CARGO_ENCODED_RUSTFLAGS': '-C\x1fb c'}):
    os.environ = given
    print(release.with_rust_flags([]) == given, release.with_rust_flags(['-C', 'd'])['CARGO_ENCODED_RUSTFLAGS'].split('\x1f'))",
    );
    let flags = ["['-C', 'd']", "['-C', 'a', '-C', 'd']", "['-C', 'b c', '-C', 'd']"];
    assert_eq!(printed, flags.map(|flags| format!("True {flags}\n")).concat());
}

#[test]
fn profile_is_unpacked_under_a_name_of_its_own() {
    let printed = release(
        "import lzma
def flags(content):
    file = folder / 'rustc.profdata.xz'
    file.write_bytes(lzma.compress(content))
    return release.profile_flags(file, folder)
for content in (b'one', b'two', b'one'):
    option, value = flags(content)
    file = pathlib.Path(value.removeprefix('profile-use='))
    print(option, file.parent == folder / 'profiles', file.read_bytes())
print(len(list((folder / 'profiles').iterdir())))",
    );
    assert_eq!(printed, "-C True b'one'\n-C True b'two'\n-C True b'one'\n2\n");
}

#[test]
fn functions_that_changed_since_the_profile_was_recorded_are_shown_as_a_number() {
    let printed = release(
        "import contextlib, io
changed = {'message': 'a.rs: function control flow change detected (hash mismatch) some', 'rendered': 'not shown\\n'}
fault = {'message': 'mismatched types', 'rendered': 'error: mismatched types\\n'}
for diagnostics in ([changed, fault, changed], [fault], []):
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        release.show_diagnostics(diagnostics)
    print(repr(said.getvalue()))",
    );
    let number = "2 functions have changed since the profile was recorded. Run `make pgo` to record a new one.";
    assert_eq!(
        printed,
        format!(r"'error: mismatched types\n{number}\n'") + "\n" + r"'error: mismatched types\n'" + "\n''\n"
    );
}

#[test]
fn profile_keeps_what_ran_and_large_functions() {
    let function = |name: &str, values: &[u64]| {
        let lines: String = values.iter().map(|value| format!("{value}\\n")).collect();
        format!("{name}\\n# Func Hash:\\n7\\n# Num Counters:\\n{}\\n# Counter Values:\\n{lines}\\n", values.len())
    };
    let functions =
        function("ran", &[0, 3]) + &function("small", &[0; 7]) + &function("large", &[0; 8]) + &function("tiny", &[0]);
    let printed = release(&format!(
        "import pgo
text = '# IR level Instrumentation Flag\\n:ir\\n{functions}'
kept = pgo.without_small_unused(text)
print([line for line in kept.splitlines() if line.isalpha() or line.startswith(':')], kept.endswith('0\\n'))"
    ));
    assert_eq!(printed, "[':ir', 'ran', 'large'] True\n");
}
