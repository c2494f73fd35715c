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

/// Else the image would be built without it, about a tenth slower.
#[test]
fn there_is_a_profile_for_the_compiler_of_the_image() {
    let container_file = read("deploy/Containerfile");
    let version =
        container_file.split("FROM rust:").nth(1).and_then(|image| image.split('-').next()).expect("a version");
    let printed = release(&format!(
        "import lzma
compiler = release.Compiler('release: {version}\\nhost: x86_64-unknown-linux-gnu\\nLLVM version: 1.2.3\\n')
file = compiler.profile_file()
print(file.name, lzma.decompress(file.read_bytes())[:8], file.stat().st_size < 1_000_000)
print(*[one.name for one in release.PROFILES.iterdir()])"
    ));
    let name = format!("rustc-{version}-x86_64-unknown-linux-gnu.profdata.xz");
    // An indexed profile of LLVM begins so.
    let expected = format!("{name} b'\\xfflprofi\\x81' True\n{name}\n");
    assert_eq!(printed, expected);
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
fn compiler_without_a_profile_builds_without_it_and_says_so() {
    let printed = release(
        "import contextlib, io
said = io.StringIO()
with contextlib.redirect_stderr(said):
    flags = release.profile_flags(release.PROFILES / 'rustc-9.9.9-host.profdata.xz', folder)
print(flags, said.getvalue().startswith('No profile for this compiler (rustc-9.9.9-host.profdata.xz; there is rustc-'))",
    );
    assert_eq!(printed, "[] True\n");
}

#[test]
fn functions_that_changed_since_the_profile_was_counted_are_shown_as_a_number() {
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
    let number = "2 functions have changed since the profile was counted. `make pgo` counts anew.";
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
