"""Splits a release binary into the program that is shipped and its symbols.

Debuggers, profilers and the program's own backtraces find the symbols by the build id, below /usr/lib/debug/.build-id, or beside the
program by its name.
"""

import re
import subprocess

MEGABYTE = 1_000_000


def build_id(program):
    """The build id of a program, or None if the linker has not written one."""
    notes = subprocess.run(["readelf", "--notes", str(program)], check=True, capture_output=True, text=True).stdout
    found = re.search(r"Build ID: ([0-9a-f]+)", notes)
    return found.group(1) if found else None


def split(program, folder):
    """Writes FOLDER/NAME without symbols and FOLDER/NAME.debug with them, and returns their paths."""
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
