"""Splits a release binary into the program that is shipped and its symbols.

    symbols.py PROGRAM FOLDER [--limit NUMBER]

Writes FOLDER/NAME without symbols and FOLDER/NAME.debug with them. Debuggers, profilers and the program's own backtraces find the
second by the build id, below /usr/lib/debug/.build-id, or beside the first by its name. Fails if the program is larger than
NUMBER megabytes.
"""

import argparse
import pathlib
import re
import subprocess
import sys

MEGABYTE = 1_000_000


def build_id(program):
    """The build id of a program, or None if the linker has not written one."""
    notes = subprocess.run(["readelf", "--notes", str(program)], check=True, capture_output=True, text=True).stdout
    found = re.search(r"Build ID: ([0-9a-f]+)", notes)
    return found.group(1) if found else None


def split(program, folder):
    """Writes both files and returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    shipped, symbols = folder / program.name, folder / f"{program.name}.debug"
    for file in (shipped, symbols):
        file.unlink(missing_ok=True)
    subprocess.run(["objcopy", "--only-keep-debug", "--compress-debug-sections", str(program), str(symbols)], check=True)
    subprocess.run(["objcopy", "--strip-all", "--remove-section=.comment", f"--add-gnu-debuglink={symbols}",
                    str(program), str(shipped)], check=True)
    symbols.chmod(0o644)
    shipped.chmod(0o755)
    return shipped, symbols


def main():
    parser = argparse.ArgumentParser(description="Splits a release binary into the program that is shipped and its symbols.")
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--limit", type=float, help="a failure above so many megabytes")
    args = parser.parse_args()
    shipped, symbols = split(args.program, args.folder)
    for file in (args.program, shipped, symbols):
        print(f"{file.stat().st_size / MEGABYTE:7.1f} MB  {file}")
    if args.limit is not None and shipped.stat().st_size > args.limit * MEGABYTE:
        sys.exit(f"{shipped} is larger than {args.limit:g} MB")


if __name__ == "__main__":
    main()
