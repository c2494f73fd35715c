"""Builds the program with profile-guided optimization: the compiler learns from a run of `make bench` which code is used most.

    pgo.py TARGET_FOLDER [FLAG…]

Builds the program twice, for half an hour on two cores: first with counters, which then runs the workloads of the benchmark, and
then with what was counted. FLAGs are further ones of the compiler for the program itself. Writes TARGET_FOLDER/dist/pgo/deskgate and its symbols.

Needs `llvm-profdata` of the compiler's LLVM version: `rustup component add llvm-tools`, or Debian's package `llvm-VERSION`, which it
installs.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import symbols

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
# Both lanes; few sessions and rules, because their number does not change which code runs.
TRAINING = ["--only", "deskgate,deskgate-pingora", "--rounds", "1", "--seconds", "2", "--largest", "1000"]


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def profdata(compiler):
    """The path of `llvm-profdata` for a compiler, which `rustc -vV` describes. Another version could not read the counters."""
    version = re.search(r"^LLVM version: (\d+)", compiler, re.MULTILINE).group(1)
    of_rustup = f"{output_of('rustc', '--print', 'sysroot').strip()}/lib/rustlib/{host_of(compiler)}/bin/llvm-profdata"
    of_debian = f"llvm-profdata-{version}"
    if found := shutil.which(of_rustup) or shutil.which(of_debian):
        return found
    subprocess.run([REPOSITORY / ".ci/need", of_debian, f"llvm-{version}"])
    if found := shutil.which(of_debian):
        return found
    sys.exit(f"llvm-profdata of LLVM {version} is missing: rustup component add llvm-tools, or apt-get install llvm-{version}")


def host_of(compiler):
    return re.search(r"^host: (.+)", compiler, re.MULTILINE).group(1)


def build(host, folder, rust_flags, link_flags):
    """Builds all crates with `rust_flags`. Returns the program. Naming the host keeps the flags from build scripts and macros."""
    command = ["cargo", "rustc", "--release", "--locked", "--no-default-features", "--bin", "deskgate", "--target", host,
               "--target-dir", folder, "--", *link_flags]
    subprocess.run(command, cwd=REPOSITORY, check=True, env=os.environ | {"CARGO_ENCODED_RUSTFLAGS": "\x1f".join(rust_flags)})
    return folder / host / "release" / "deskgate"


def main():
    target, link_flags = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
    folder, compiler = target / "pgo", output_of("rustc", "-vV")
    host, merge, counters, profile = host_of(compiler), profdata(compiler), folder / "counters", folder / "deskgate.profdata"
    shutil.rmtree(counters, ignore_errors=True)
    program = build(host, folder / "counting", ["-C", f"profile-generate={counters}"], link_flags)
    subprocess.run([sys.executable, REPOSITORY / "benches/compare.py", "--program", program, *TRAINING], check=True,
                   env=os.environ | {"CARGO_TARGET_DIR": str(folder)})
    subprocess.run([merge, "merge", "--output", profile, counters], check=True)
    program = build(host, folder / "optimized", ["-C", f"profile-use={profile}"], link_flags)
    for file in symbols.split(program, target / "dist" / "pgo"):
        print(f"{file.stat().st_size / symbols.MEGABYTE:7.1f} MB  {file}")


if __name__ == "__main__":
    main()
