"""Records which code requests execute most often, for profile-guided optimization.

    pgo.py TARGET_FOLDER

Builds the program with counters, runs the workloads of the benchmark, and keeps the counts in `deploy/profiles` for `release.py`,
in place of earlier ones for this target. Takes 20 minutes on two cores.

Needs `llvm-profdata` of the compiler's LLVM version: `rustup component add llvm-tools`, or Debian's package `llvm-VERSION`, which it
installs.
"""

import lzma
import os
import pathlib
import shutil
import subprocess
import sys

import release

# Both lanes; few sessions and rules, because their number does not change which code runs.
TRAINING = ["--only", "deskgate,deskgate-pingora", "--rounds", "1", "--seconds", "2", "--largest", "1000"]
# One thread has another scheduler than several.
THREADS = [1, 2]
# The fewest counters of a large function; it has about one for each branch.
LARGE = 8


def profdata(compiler):
    """The path of `llvm-profdata` for a compiler. Another version could not read the counters."""
    version = compiler.llvm.partition(".")[0]
    sysroot = subprocess.run(["rustc", "--print", "sysroot"], check=True, capture_output=True, text=True).stdout.strip()
    of_rustup, of_debian = f"{sysroot}/lib/rustlib/{compiler.host}/bin/llvm-profdata", f"llvm-profdata-{version}"
    if found := shutil.which(of_rustup) or shutil.which(of_debian):
        return found
    subprocess.run([release.REPOSITORY / ".ci/need", of_debian, f"llvm-{version}"])
    if found := shutil.which(of_debian):
        return found
    sys.exit(f"llvm-profdata of LLVM {version} is missing: rustup component add llvm-tools, or apt-get install llvm-{version}")


def without_small_unused(text):
    """A profile as text, without the small functions that never ran. They are two thirds of all. Of the large ones the compiler must
    know that they never ran, so that it optimizes them for size."""
    head, kind, functions = text.partition(":ir\n")
    return head + kind + "\n\n".join(one for one in functions.strip().split("\n\n") if is_kept(one)) + "\n"


def is_kept(function):
    """Whether the profile keeps a function: its name, hash, number of counters and their values, one on each line."""
    lines = [line for line in function.splitlines() if not line.startswith("#")]
    values = lines[3:3 + int(lines[2])] if len(lines) > 3 else []
    return len(values) >= LARGE or any(value != "0" for value in values)


def keep(profile, compiler):
    """Packs a profile into the repository, and removes those of other compilers for the same target."""
    file = compiler.profile_file()
    file.parent.mkdir(exist_ok=True)
    for earlier in file.parent.glob(f"*-{compiler.host}-*.profdata.xz"):
        earlier.unlink()
    file.write_bytes(lzma.compress(profile.read_bytes(), preset=9 | lzma.PRESET_EXTREME))
    return file


def main():
    folder, compiler = pathlib.Path(sys.argv[1]).resolve() / "pgo", release.compiler()
    merge, counters, text, profile = profdata(compiler), folder / "counters", folder / "counts.txt", folder / "deskgate.profdata"
    shutil.rmtree(counters, ignore_errors=True)
    program = release.build(folder / "counting", "--bin", "deskgate", ["-C", f"profile-generate={counters}"])
    for threads in THREADS:
        subprocess.run([sys.executable, release.REPOSITORY / "benches/compare.py", "--program", program, "--threads", str(threads),
                        *TRAINING], check=True, env=os.environ | {"CARGO_TARGET_DIR": str(folder)})
    subprocess.run([merge, "merge", "--text", "--output", text, counters], check=True)
    text.write_text(without_small_unused(text.read_text()))
    subprocess.run([merge, "merge", "--output", profile, text], check=True)
    kept = keep(profile, compiler)
    print(f"{kept.stat().st_size / 1000:.0f} kB  {kept}")


if __name__ == "__main__":
    main()
