"""The progress bar. Writes to a terminal only; elsewhere, a line for each workload."""

import shutil
import sys
import time

WIDTH = 24


class Progress:
    """Counts turns of unequal length; the time left is estimated from those that are done."""

    def __init__(self, total, output=sys.stderr):
        self.total, self.done, self.output, self.started = total, 0, output, time.monotonic()
        self.is_terminal = output.isatty()

    def begin(self, workload):
        """Announces a workload."""
        if not self.is_terminal:
            print(workload, file=self.output, flush=True)

    def show(self, what):
        """Says what is done now."""
        if self.is_terminal:
            line = bar(self.done, self.total, time.monotonic() - self.started) + "  " + what
            columns = shutil.get_terminal_size().columns - 1
            print("\r" + line[:columns].ljust(columns), end="", file=self.output, flush=True)

    def step(self, turns=1):
        self.done = min(self.total, self.done + turns)

    def end(self):
        if self.is_terminal:
            print("\r" + " " * (shutil.get_terminal_size().columns - 1) + "\r", end="", file=self.output, flush=True)


def bar(done, total, seconds):
    """The bar with the share that is done and the time left."""
    share = done / total if total else 1.0
    filled = int(share * WIDTH)
    left = f"{clock(seconds / share - seconds)} left" if share > 0.02 else ""
    return f"[{'#' * filled}{'-' * (WIDTH - filled)}] {share:4.0%} {left:>10}"


def clock(seconds):
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
