"""Turns that the host of a virtual machine disturbs are repeated, whoever's they are and whatever they measured."""

import os
import pathlib
import time

from servers import CORES

# The share of the processor time that the host may give to others during a turn that counts.
MOST_STOLEN = 0.05
# Of a run, for all repetitions.
PATIENCE_SECONDS = 900
# In the first line of /proc/stat, after its name: user, nice, system, idle, iowait, irq, softirq, steal.
STEAL_FIELD = 8


def stolen_seconds():
    """Processor time that the host has given to others so far, although this machine could have used it."""
    first_line = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0]
    return int(first_line.split()[STEAL_FIELD]) / os.sysconf("SC_CLK_TCK")


class Host:
    """Counts the repetitions of a run."""

    def __init__(self, patience=PATIENCE_SECONDS):
        self.patience, self.repeated, self.disturbed = patience, 0, 0

    def tries(self):
        """A turn is measured once for each item of this iterator; its last measurement counts."""
        while True:
            stolen, began = stolen_seconds(), time.monotonic()
            yield
            took = time.monotonic() - began
            if stolen_seconds() - stolen <= MOST_STOLEN * took * len(CORES):
                return
            if self.patience <= 0:
                self.disturbed += 1
                return
            self.patience -= took
            self.repeated += 1

    def notes(self):
        reason = f"because the host took more than {MOST_STOLEN:.0%} of the processor time"
        notes = [f"{self.repeated} turns were repeated, {reason}."] if self.repeated else []
        return notes + ([f"{self.disturbed} more turns count, although the host took as much."] if self.disturbed else [])
