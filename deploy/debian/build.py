"""Builds the Debian packages deskgate and deskgate-dbgsym with dpkg-deb.

    build.py --program FILE [--version VERSION] [--output FOLDER] [--compression xz]

The program must have been built without the feature `demo`; its symbols go to the second package. Manual pages and completions
come from the program itself. SOURCE_DATE_EPOCH, or else the time of the last commit, is the time of all files, so that the same
program gives the same packages. DEBFULLNAME and DEBEMAIL name the maintainer. The exit code is 1 if a file that the packages need
is missing.
"""

import argparse
import email.utils
import gzip
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time as clock
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import manual  # noqa: E402
import sbom  # noqa: E402
import symbols  # noqa: E402

CONFIG = "etc/deskgate/deskgate.toml"
DOCUMENTATION = "usr/share/doc/deskgate"
# Examples of other folders of deploy/, where they exist.
EXAMPLES = ["prometheus", "grafana", "sysctl"]


def output(*command, **options):
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True, **options).stdout


def time_of_build():
    """Seconds since 1970: SOURCE_DATE_EPOCH, the time of the last commit, or now."""
    if os.environ.get("SOURCE_DATE_EPOCH"):
        return int(os.environ["SOURCE_DATE_EPOCH"])
    try:
        return int(output("git", "log", "-1", "--format=%ct", cwd=REPOSITORY))
    except (OSError, subprocess.CalledProcessError):
        return int(clock.time())


class Tree:
    """The files of a package."""

    def __init__(self, folder, time):
        self.root, self.time = folder, time
        folder.mkdir()
        folder.chmod(0o755)

    def write(self, name, data, mode=0o644):
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data if isinstance(data, bytes) else data.encode())
        file.chmod(mode)

    def write_compressed(self, name, data):
        """`NAME.gz`, without the time in its head."""
        self.write(f"{name}.gz", gzip.compress(data if isinstance(data, bytes) else data.encode(), 9, mtime=0))

    def copy(self, source, name, mode=0o644):
        self.write(name, pathlib.Path(source).read_bytes(), mode)

    def files(self):
        return sorted(file for file in self.root.rglob("*") if file.is_file() and "DEBIAN" not in file.parts)

    def build(self, control, target, compression):
        """Writes the control files and builds the package."""
        size = sum(-(-file.stat().st_size // 1024) for file in self.files())
        sums = "".join(f"{hashlib.md5(file.read_bytes()).hexdigest()}  {file.relative_to(self.root)}\n" for file in self.files())
        self.write("DEBIAN/control", control(size))
        self.write("DEBIAN/md5sums", sums)
        conffiles = [f"/{file.relative_to(self.root)}\n" for file in self.files() if file.is_relative_to(self.root / "etc")]
        if conffiles:
            self.write("DEBIAN/conffiles", "".join(conffiles))
        for path in [*self.root.rglob("*"), self.root]:
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)
            os.utime(path, (self.time, self.time), follow_symlinks=False)
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(self.time)}
        output("dpkg-deb", "--root-owner-group", f"-Z{compression}", "--build", self.root, target, env=environment)


def libraries(program, folder):
    """The packages of the shared libraries that the program needs, as dpkg-shlibdeps finds them."""
    (folder / "debian").mkdir()
    (folder / "debian/control").write_text("Source: deskgate\n\nPackage: deskgate\nArchitecture: any\n")
    found = output("dpkg-shlibdeps", "-O", program, cwd=folder).strip().removeprefix("shlibs:Depends=")
    # dpkg-shlibdeps knows symbols, and this is a version without one: relative relocations as `make release` packs them.
    packed = "GLIBC_ABI_DT_RELR" in output("readelf", "--version-info", "--wide", program)
    return f"{found}, libc6 (>= 2.36)" if packed else found


def unit(name):
    """A unit of deploy/systemd, for a program in /usr/bin."""
    text = (REPOSITORY / "deploy/systemd" / name).read_text()
    assert "/usr/local" not in text.replace("/usr/local/bin/deskgate", ""), f"{name} has another path in /usr/local"
    lines = text.replace("/usr/local/bin/deskgate", "/usr/bin/deskgate").splitlines(keepends=True)
    return "".join(line for line in lines if "copy both files" not in line)


def licenses():
    """The licences and notices of all crates in the program, each text once."""
    target = sbom.host()
    kept = sbom.compiled(target, "")
    crates_of_text = {}
    for package in sbom.metadata(target, "")["packages"]:
        if package["source"] is None or (package["name"], "v" + package["version"]) not in kept:
            continue
        folder = pathlib.Path(package["manifest_path"]).parent
        names = ("license", "licence", "copying", "copyright", "notice", "unlicense")
        for file in sorted(folder.iterdir()):
            if file.is_file() and file.name.lower().startswith(names):
                text = file.read_text(errors="replace").strip()
                crates_of_text.setdefault(text, set()).add(f"{package['name']} {package['version']}")
    parts = [f"{', '.join(sorted(crates))}\n\n{text}\n" for text, crates in sorted(crates_of_text.items(), key=lambda i: sorted(i[1]))]
    return f"\n{'-' * 80}\n\n".join(parts)


def fill_documentation(tree, version, maintainer, time):
    date = email.utils.formatdate(time)
    entry = f"deskgate ({version}) unstable; urgency=medium\n\n  * Built from the sources; changelog.gz says what changed.\n\n"
    tree.write_compressed(f"{DOCUMENTATION}/changelog.Debian", f"{entry} -- {maintainer}  {date}\n")
    tree.write_compressed(f"{DOCUMENTATION}/changelog", (REPOSITORY / "CHANGELOG.md").read_bytes())
    tree.write_compressed(f"{DOCUMENTATION}/third-party-licenses.txt", licenses())
    tree.copy(HERE / "copyright", f"{DOCUMENTATION}/copyright")
    tree.copy(HERE / "lintian-overrides", "usr/share/lintian/overrides/deskgate")
    for page in [REPOSITORY / "README.md", *REPOSITORY.glob("docs/**/*.md")]:
        tree.write_compressed(f"{DOCUMENTATION}/{page.relative_to(REPOSITORY)}", page.read_bytes())
    for file in sorted(REPOSITORY.glob("conf/*.toml")):
        tree.copy(file, f"{DOCUMENTATION}/examples/{file.name}")
    for folder in EXAMPLES:
        for file in sorted((REPOSITORY / "deploy" / folder).rglob("*")):
            if file.is_file() and file.suffix in (".yaml", ".json", ".conf"):
                tree.copy(file, f"{DOCUMENTATION}/examples/{file.relative_to(REPOSITORY / 'deploy')}")


def fill(tree, program, shipped, version, release, maintainer, time):
    """Puts all files of the package deskgate in place."""
    tree.copy(shipped, "usr/bin/deskgate", 0o755)
    example = (REPOSITORY / "conf/production.toml").read_text()
    tree.write(CONFIG, example.replace("--config conf/production.toml", f"--config /{CONFIG}"))
    for rule in sorted((REPOSITORY / "lua-free-rules").glob("*.toml")):
        tree.copy(rule, f"etc/deskgate/lua-free-rules/{rule.name}")
    tree.copy(HERE / "logrotate", "etc/logrotate.d/deskgate")
    for name in ("deskgate.service", "deskgate.socket"):
        tree.write(f"lib/systemd/system/{name}", unit(name))
    with tempfile.TemporaryDirectory() as pages:
        output(program, "man", pages)
        for page in sorted(pathlib.Path(pages).iterdir()):
            tree.write_compressed(f"usr/share/man/man1/{page.name}", page.read_bytes())
    reference = (REPOSITORY / "conf/deskgate.toml").read_text()
    tree.write_compressed("usr/share/man/man5/deskgate.toml.5", manual.page(reference, release, sbom.timestamp(time)[:10]))
    for shell, file in [("bash", "bash-completion/completions/deskgate"), ("zsh", "zsh/vendor-completions/_deskgate"),
                        ("fish", "fish/vendor_completions.d/deskgate.fish")]:
        tree.write(f"usr/share/{file}", output(program, "completions", shell))
    fill_documentation(tree, version, maintainer, time)
    for script in ("postinst", "prerm", "postrm"):
        tree.copy(HERE / script, f"DEBIAN/{script}", 0o755)


def build(program, version, folder, compression):
    """Builds both packages and returns their paths."""
    release = tomllib.loads((REPOSITORY / "Cargo.toml").read_text())["package"]["version"]
    version, time = version or f"{release}-1", time_of_build()
    architecture = output("dpkg", "--print-architecture").strip()
    maintainer = f"{os.environ.get('DEBFULLNAME', 'deskgate maintainers')} <{os.environ.get('DEBEMAIL', 'deskgate@packages.example')}>"
    help_text = output(program, "--help")
    if "demo-services" in help_text:
        print("warning: this program was built with the feature `demo`, which does not belong into a package", file=sys.stderr)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        shipped, debug = symbols.split(program, work / "split")
        identity = symbols.build_id(program)
        names = [folder / f"{name}_{version}_{architecture}.deb" for name in ("deskgate", "deskgate-dbgsym")]
        fields = {"version": version, "architecture": architecture, "maintainer": maintainer, "build_id": identity}

        tree = Tree(work / "deskgate", time)
        fill(tree, program, shipped, version, release, maintainer, time)
        bill = sbom.document(sbom.host(), "")
        bill["metadata"]["timestamp"] = sbom.timestamp(time)
        tree.write_compressed(f"{DOCUMENTATION}/deskgate.cdx.json", json.dumps(bill, indent=1))
        (work / "libraries").mkdir()
        fields["libraries"] = libraries(shipped, work / "libraries")
        tree.build(lambda size: (HERE / "control").read_text().format(size=size, **fields), names[0], compression)

        tree = Tree(work / "deskgate-dbgsym", time)
        tree.copy(debug, f"usr/lib/debug/.build-id/{identity[:2]}/{identity[2:]}.debug")
        (tree.root / "usr/share/doc").mkdir(parents=True)
        (tree.root / "usr/share/doc/deskgate-dbgsym").symlink_to("deskgate")
        tree.build(lambda size: (HERE / "control-dbgsym").read_text().format(size=size, **fields), names[1], compression)
    return names


def main():
    parser = argparse.ArgumentParser(description="Builds the Debian packages deskgate and deskgate-dbgsym.")
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--version", help="default: that of Cargo.toml, with the revision 1")
    parser.add_argument("--output", type=pathlib.Path, default=target / "dist")
    parser.add_argument("--compression", default="xz", choices=["none", "gzip", "xz", "zstd"])
    args = parser.parse_args()
    for package in build(args.program.resolve(), args.version, args.output, args.compression):
        print(f"{package.stat().st_size / 1_000_000:7.1f} MB  {package}")


if __name__ == "__main__":
    main()
