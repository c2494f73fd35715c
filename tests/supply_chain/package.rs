//! The Debian package, built from the binary of the tests.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cargo::{output, read, repository};

/// Both packages, unpacked.
struct Packages {
    /// Removes the files at the end.
    _folder: tempfile::TempDir,
    /// The files of deskgate, and its control files in `DEBIAN`.
    program: PathBuf,
    symbols: PathBuf,
    /// `dpkg-deb --contents` of deskgate.
    contents: String,
}

impl Packages {
    /// Builds and unpacks both packages.
    fn build() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut build = Command::new("python3");
        build.arg(repository().join("deploy/debian/build.py")).arg("--program").arg(env!("CARGO_BIN_EXE_deskgate"));
        build.args(["--version", "1.2.3-1", "--compression", "none", "--output"]).arg(folder.path());
        output(build.env("CARGO_NET_OFFLINE", "true").env("SOURCE_DATE_EPOCH", "1700000000"));
        let file = |name: &str| {
            let mut files = std::fs::read_dir(folder.path()).expect("a folder").flatten().map(|entry| entry.path());
            let is_named =
                |file: &PathBuf| file.file_name().is_some_and(|file| file.to_string_lossy().starts_with(name));
            files.find(is_named).unwrap_or_else(|| panic!("no package {name}"))
        };
        let unpack = |name: &str| {
            let target = folder.path().join(name.trim_end_matches("_1.2.3-1_"));
            output(Command::new("dpkg-deb").arg("--raw-extract").arg(file(name)).arg(&target));
            target
        };
        let contents = output(Command::new("dpkg-deb").arg("--contents").arg(file("deskgate_1.2.3-1_")));
        let (program, symbols) = (unpack("deskgate_1.2.3-1_"), unpack("deskgate-dbgsym_1.2.3-1_"));
        Self { program, symbols, contents, _folder: folder }
    }
}

/// Whether packages can be built here; says so if not.
fn has_dpkg() -> bool {
    let runs = |program: &str| Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok();
    let installed = runs("dpkg-deb") && runs("dpkg-shlibdeps");
    if !installed {
        eprintln!("dpkg-deb or dpkg-shlibdeps is not installed: the packages are not tested");
    }
    installed
}

/// One test for all of it: every test has a process of its own, and building the packages takes a while.
#[test]
fn the_debian_packages_are_complete() {
    if !has_dpkg() {
        return;
    }
    let packages = Packages::build();
    has_all_files_with_owners_and_modes(&packages);
    everything_in_etc_is_a_configuration_file(&packages);
    control_files_name_version_dependencies_and_symbols(&packages);
    units_start_the_program_of_the_package(&packages);
    every_command_has_a_manual_page(&packages);
    the_manual_of_the_configuration_has_every_setting(&packages);
    completions_are_those_of_the_program(&packages);
    maintainer_scripts_are_valid_and_executable(&packages);
}

/// `make release` packs relocations in a way that takes glibc 2.36; no symbol tells dpkg-shlibdeps.
#[test]
fn packed_relocations_need_the_libc_that_reads_them() {
    if !has_dpkg() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let dependencies = |name: &str, flags: &[&str]| {
        let (source, program) = (folder.path().join("main.rs"), folder.path().join(name));
        std::fs::write(&source, "fn main() { println!(\"{:?}\", std::env::args()); }").expect("a file");
        output(Command::new("rustc").args(flags).arg("-o").arg(&program).arg(&source));
        let script = "import pathlib, sys; sys.path.insert(0, sys.argv[1]); import build; \
                      folder = pathlib.Path(sys.argv[2] + '.libraries'); folder.mkdir(); \
                      print(build.libraries(sys.argv[2], folder))";
        let mut python = Command::new("python3");
        python.args(["-c", script]).arg(repository().join("deploy/debian")).arg(&program);
        let notes = output(Command::new("readelf").args(["--version-info", "--wide"]).arg(&program));
        (notes.contains("GLIBC_ABI_DT_RELR"), output(&mut python))
    };
    let (packed, plain) = dependencies("plain", &[]);
    assert!(!packed && plain.contains("libc6 (>= ") && !plain.trim_end().ends_with(", libc6 (>= 2.36)"), "{plain}");
    match dependencies("packed", &["-C", "link-arg=-Wl,-z,pack-relative-relocs"]) {
        (true, packed) => assert!(packed.contains("libc6 (>= 2.36)"), "{packed}"),
        (false, _) => eprintln!("this linker does not pack relocations"),
    }
}

/// The text of a compressed file.
fn unzip(file: &Path) -> String {
    let mut text = String::new();
    let mut gzip = Command::new("gzip").args(["-cd"]).arg(file).stdout(Stdio::piped()).spawn().expect("gzip");
    gzip.stdout.take().expect("a pipe").read_to_string(&mut text).expect("text");
    assert!(gzip.wait().is_ok_and(|status| status.success()), "{}", file.display());
    text
}

/// `Name: value` of a control file.
fn control(package: &Path) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(package.join("DEBIAN/control")).expect("a control file");
    let fields = text.lines().filter(|line| !line.starts_with(' ')).filter_map(|line| line.split_once(": "));
    fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn has_all_files_with_owners_and_modes(packages: &Packages) {
    let modes: BTreeMap<&str, &str> = packages
        .contents
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let mode = words.next()?;
            assert_eq!(words.next(), Some("root/root"), "{line}");
            words.last().map(|name| (name.trim_start_matches('.'), mode))
        })
        .collect();
    for (file, mode) in [
        ("/usr/bin/deskgate", "-rwxr-xr-x"),
        ("/etc/deskgate/deskgate.toml", "-rw-r--r--"),
        ("/etc/deskgate/lua-free-rules/matrix.toml", "-rw-r--r--"),
        ("/etc/logrotate.d/deskgate", "-rw-r--r--"),
        ("/lib/systemd/system/deskgate.service", "-rw-r--r--"),
        ("/lib/systemd/system/deskgate.socket", "-rw-r--r--"),
        ("/usr/share/man/man1/deskgate.1.gz", "-rw-r--r--"),
        ("/usr/share/man/man5/deskgate.toml.5.gz", "-rw-r--r--"),
        ("/usr/share/bash-completion/completions/deskgate", "-rw-r--r--"),
        ("/usr/share/zsh/vendor-completions/_deskgate", "-rw-r--r--"),
        ("/usr/share/fish/vendor_completions.d/deskgate.fish", "-rw-r--r--"),
        ("/usr/share/doc/deskgate/copyright", "-rw-r--r--"),
        ("/usr/share/doc/deskgate/changelog.gz", "-rw-r--r--"),
        ("/usr/share/doc/deskgate/changelog.Debian.gz", "-rw-r--r--"),
        ("/usr/share/doc/deskgate/third-party-licenses.txt.gz", "-rw-r--r--"),
        ("/usr/share/doc/deskgate/deskgate.cdx.json.gz", "-rw-r--r--"),
        ("/usr/share/doc/deskgate/docs/operations.md.gz", "-rw-r--r--"),
    ] {
        assert_eq!(modes.get(file), Some(&mode), "{file}");
    }
    assert!(modes.iter().all(|(name, mode)| !mode.starts_with('d') || *mode == "drwxr-xr-x" && name.ends_with('/')));
}

fn everything_in_etc_is_a_configuration_file(packages: &Packages) {
    let text = std::fs::read_to_string(packages.program.join("DEBIAN/conffiles")).expect("a list");
    let listed: BTreeSet<&str> = text.lines().collect();
    let names = packages.contents.lines().filter_map(|line| line.split_whitespace().last());
    let in_etc: BTreeSet<&str> =
        names.map(|name| &name[1..]).filter(|name| name.starts_with("/etc/") && !name.ends_with('/')).collect();
    assert!(in_etc.len() > 5 && listed == in_etc, "{listed:?} {in_etc:?}");
}

fn control_files_name_version_dependencies_and_symbols(packages: &Packages) {
    let (program, symbols) = (control(&packages.program), control(&packages.symbols));
    assert_eq!(program["Version"], "1.2.3-1");
    for needed in ["libc6 (>= ", "adduser", "ca-certificates"] {
        assert!(program["Depends"].contains(needed), "{}", program["Depends"]);
    }
    assert_eq!(symbols["Depends"], "deskgate (= 1.2.3-1)");
    let id = &symbols["Build-Ids"];
    let file = packages.symbols.join(format!("usr/lib/debug/.build-id/{}/{}.debug", &id[..2], &id[2..]));
    let sections = |file: &Path| output(Command::new("readelf").args(["--sections", "--wide"]).arg(file));
    assert!(sections(&file).contains(".debug_line"), "the symbols have line tables");
    let shipped = packages.program.join("usr/bin/deskgate");
    for gone in [".debug_info", ".debug_line", ".symtab"] {
        assert!(!sections(&shipped).contains(gone), "the program has {gone}");
    }
    assert!(sections(&shipped).contains(".gnu_debuglink"));
}

fn units_start_the_program_of_the_package(packages: &Packages) {
    let unit = std::fs::read_to_string(packages.program.join("lib/systemd/system/deskgate.service")).expect("a unit");
    let config = "--config /etc/deskgate/deskgate.toml";
    assert!(unit.contains(&format!("ExecStart=/usr/bin/deskgate serve {config}")), "{unit}");
    assert!(!unit.contains("/usr/local"), "{unit}");
    let logrotate = read("deploy/debian/logrotate");
    assert!(logrotate.starts_with('#') && logrotate.contains("/var/log/deskgate/*.log {"));
}

/// Every visible command has a page, and every page is one that the manual can show.
fn every_command_has_a_manual_page(packages: &Packages) {
    let folder = packages.program.join("usr/share/man/man1");
    let commands = |arguments: &[&str]| -> Vec<String> {
        let help = output(Command::new(env!("CARGO_BIN_EXE_deskgate")).args(arguments).arg("--help"));
        let Some(list) = help.split("Commands:\n").nth(1) else { return Vec::new() };
        let rows = list.lines().take_while(|line| line.starts_with("  "));
        let names = rows.filter(|line| !line.starts_with("   ")).filter_map(|line| line.split_whitespace().next());
        names.filter(|name| *name != "help").map(str::to_owned).collect()
    };
    let mut expected = BTreeSet::from(["deskgate.1.gz".to_owned()]);
    let top = commands(&[]);
    assert!(top.len() > 10, "{top:?}");
    for name in &top {
        expected.insert(format!("deskgate-{name}.1.gz"));
        let nested = commands(&[name]);
        expected.extend(nested.iter().map(|nested| format!("deskgate-{name}-{nested}.1.gz")));
    }
    let pages: BTreeSet<String> = std::fs::read_dir(&folder)
        .expect("a folder")
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    let missing: Vec<&String> = expected.difference(&pages).collect();
    assert!(missing.is_empty(), "no page for {missing:?}");
    let page = unzip(&folder.join("deskgate-serve.1.gz"));
    let head = page.lines().find(|line| line.starts_with(".TH ")).expect("a head");
    let head: Vec<&str> = head.split(' ').collect();
    assert!(head[..3] == [".TH", "deskgate-serve", "1"] && head[3].starts_with("20"), "{head:?}");
    for part in ["deskgate manual", "SEE ALSO", "deskgate.toml", "\\-\\-upgrade"] {
        assert!(page.contains(part), "no {part} in {page}");
    }
}

fn the_manual_of_the_configuration_has_every_setting(packages: &Packages) {
    let page = unzip(&packages.program.join("usr/share/man/man5/deskgate.toml.5.gz"));
    let mut settings = 0;
    for line in read("conf/deskgate.toml").lines() {
        let line = line.strip_prefix("# ").unwrap_or(line);
        let line = line.strip_prefix("# ").unwrap_or(line);
        let Some((key, _)) = line.split_once(" = ") else { continue };
        if key.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_') {
            assert!(page.contains(&format!("\\fB{key} = ")), "{key} is missing");
            settings += 1;
        }
    }
    assert!(settings > 100, "only {settings} settings were read");
}

fn completions_are_those_of_the_program(packages: &Packages) {
    for (shell, file, part) in [
        ("bash", "bash-completion/completions/deskgate", "complete -F _deskgate"),
        ("zsh", "zsh/vendor-completions/_deskgate", "#compdef deskgate"),
        ("fish", "fish/vendor_completions.d/deskgate.fish", "complete -c deskgate"),
    ] {
        let script = std::fs::read_to_string(packages.program.join("usr/share").join(file)).expect("a script");
        assert!(script.contains(part), "{shell}: {part}");
    }
}

/// Scripts of packages run as root on every machine: at least the shell must understand them.
fn maintainer_scripts_are_valid_and_executable(packages: &Packages) {
    for script in ["postinst", "prerm", "postrm"] {
        let file = packages.program.join("DEBIAN").join(script);
        let text = std::fs::read_to_string(&file).expect("a script");
        assert!(text.starts_with("#!/bin/sh\nset -e\n"), "{script}");
        output(Command::new("sh").arg("-n").arg(&file));
        let executable =
            std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).expect("a file").permissions());
        assert_eq!(executable & 0o111, 0o111, "{script}");
    }
}
