"""Builds the program that is shipped, and splits it from its symbols.

    release.py TARGET_FOLDER [--features NAMES]

Writes TARGET_FOLDER/dist/deskgate and its symbols beside it. Fails if the program is larger than 25 MB, unless it has further
features.

The build uses profile-guided optimization: a profile in `deploy/profiles`, which `make pgo` records, tells the compiler which code
requests execute most often. Symbol names depend on the compiler version and on the program's version, features, dependencies and release
settings, so the profile matches only while these stay the same. If it does not match, this script prints a warning; the program then
behaves the same but is about a tenth slower.
"""

import argparse
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tomllib

import symbols

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
PROFILES = REPOSITORY / "deploy/profiles"
# Most megabytes of the program.
LIMIT = 25
FLAGS = [
    # Relative relocations in a tenth of the space: glibc 2.36 (Debian 12) or later.
    "-C", "link-arg=-Wl,-z,pack-relative-relocs",
    # Less inlining of functions that are neither marked for inlining nor called often according to the profile.
    "-C", "llvm-args=-inline-threshold=60",
]

# The compiler's warning about a function whose code has changed since the profile was recorded.
CHANGED = "function control flow change detected"


class Compiler:
    """The compiler that `cargo` calls, as it describes itself."""

    def __init__(self, description):
        self.description = description
        self.version, self.host, self.llvm, self.commit = map(self._value, ("release", "host", "LLVM version", "commit-hash"))

    def _value(self, name):
        return re.search(rf"^{name}: (.+)", self.description, re.MULTILINE).group(1)

    def profiles(self):
        """What all profiles of this version for this kind of machine are named."""
        return f"rustc-{self.version}-{self.host}-*.profdata.xz"

    def profile_file(self, features=""):
        """Where the matching profile is kept."""
        manifest = tomllib.loads((REPOSITORY / "Cargo.toml").read_text())
        settings = [manifest["dependencies"], manifest["features"], manifest["profile"]["release"]]
        parts = [self.commit, (REPOSITORY / "Cargo.lock").read_text(), json.dumps(settings, sort_keys=True), features]
        digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:8]
        return PROFILES / self.profiles().replace("*", digest)


def compiler():
    command = [os.environ.get("RUSTC", "rustc"), "-vV"]
    return Compiler(subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout)


def find_profile(compiler, features=""):
    """The profile for this compiler, or None. A profile that no longer matches is better than none: parts of it may still apply."""
    fitting = compiler.profile_file(features)
    if fitting.exists():
        return fitting
    others = sorted(PROFILES.glob(compiler.profiles()))
    if others:
        print(f"{others[0].name} was recorded with other dependencies or settings and hardly matches. "
              "Run `make pgo` to record a new profile.", file=sys.stderr)
        return others[0]
    print(f"No profile for rustc {compiler.version} on {compiler.host}: building without it. "
          "Run `make pgo` to record one.", file=sys.stderr)
    return None


def profile_flags(file, target_folder):
    """The flags of the compiler for a profile, which is unpacked into the target folder."""
    try:
        import lzma
    except ImportError:
        print("This Python cannot unpack the profile (it has no lzma): building without it.", file=sys.stderr)
        return []
    packed = file.read_bytes()
    # Named after its content, because cargo builds anew only if the flags change.
    unpacked = target_folder / "profiles" / f"{hashlib.sha256(packed).hexdigest()[:16]}.profdata"
    if not unpacked.exists():
        unpacked.parent.mkdir(parents=True, exist_ok=True)
        partial = unpacked.with_suffix(".partial")
        partial.write_bytes(lzma.decompress(packed))
        partial.rename(unpacked)
    return ["-C", f"profile-use={unpacked}"]


def build(target_folder, kind, name, rust_flags, features=""):
    """Builds `--bin deskgate` or `--example bare_proxy`, all crates with `rust_flags`. Returns the program. Naming the host keeps
    these flags from build scripts and macros."""
    command = ["cargo", "rustc", "--release", "--locked", "--no-default-features", "--features", features, kind, name,
               "--target", compiler().host, "--target-dir", target_folder, "--message-format", "json", "--", *FLAGS]
    built = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, env=with_rust_flags(rust_flags))
    messages = [json.loads(line) for line in built.stdout.splitlines() if line.startswith("{")]
    show_diagnostics([one["message"] for one in messages if one["reason"] == "compiler-message"])
    built.check_returncode()
    programs = [one["executable"] for one in messages if one.get("executable") and one["target"]["name"] == name]
    return pathlib.Path(programs[0])


def with_rust_flags(rust_flags):
    """The environment with further flags of the compiler for all crates."""
    if not rust_flags:
        return os.environ
    encoded = os.environ.get("CARGO_ENCODED_RUSTFLAGS")
    given = encoded.split("\x1f") if encoded else os.environ.get("RUSTFLAGS", "").split()
    return os.environ | {"CARGO_ENCODED_RUSTFLAGS": "\x1f".join([*given, *rust_flags])}


def show_diagnostics(diagnostics):
    """Shows what the compiler says; of functions that have changed since the profile was recorded, only their number."""
    changed = [one for one in diagnostics if CHANGED in one["message"]]
    for one in diagnostics:
        if one not in changed:
            print(one["rendered"], end="", file=sys.stderr)
    if changed:
        print(f"{len(changed)} functions have changed since the profile was recorded. Run `make pgo` to record a new one.", file=sys.stderr)


def build_for_release(target_folder, features=""):
    """Builds the program as it is shipped. Returns it, with its symbols."""
    profile = find_profile(compiler(), features)
    return build(target_folder, "--bin", "deskgate", profile_flags(profile, target_folder) if profile else [], features)


def main():
    parser = argparse.ArgumentParser(description="Builds the program that is shipped, and splits it from its symbols.")
    parser.add_argument("target_folder", type=pathlib.Path)
    parser.add_argument("--features", default="")
    args = parser.parse_args()
    target_folder = args.target_folder.resolve()
    try:
        program = build_for_release(target_folder, args.features)
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
    shipped, shipped_symbols = symbols.split(program, target_folder / "dist")
    for file in (program, shipped, shipped_symbols):
        print(f"{file.stat().st_size / symbols.MEGABYTE:7.1f} MB  {file}")
    if not args.features and shipped.stat().st_size > LIMIT * symbols.MEGABYTE:
        sys.exit(f"{shipped} is larger than {LIMIT} MB")


if __name__ == "__main__":
    main()
