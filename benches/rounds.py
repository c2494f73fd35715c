"""Interleaved rounds: who takes a turn when, and the figure of each round."""

import statistics

# The turns in a round of those whose ratio is close to its target: single turns differ by more than what is left to the target.
OFTEN = 3


def in_turn(items, number):
    """The items, beginning with another one in each round."""
    start = number % len(items) if items else 0
    return items[start:] + items[:start]


def turns_of(keys, often, number):
    """The turns of a round: one of each key, then further ones of those that are measured often."""
    return in_turn(keys, number) + (OFTEN - 1) * in_turn([key for key in keys if key in often], number)


class Rounds:
    """The turns of a workload and the values that they measured. The figure of a round is the median of a key's turns."""

    def __init__(self, keys, count, often=()):
        self.keys, self.count, self.often = list(keys), count, often
        self.values = {key: [] for key in self.keys}
        self.measured = {}

    def turns(self):
        """The key of each turn. The first turn of each is a warm-up."""
        yield from turns_of(self.keys, (), 0)
        for number in range(1, self.count + 1):
            self.measured = {key: [] for key in self.keys}
            yield from turns_of(self.keys, self.often, number)
            for key, measured in self.measured.items():
                self.values[key].append(statistics.median(measured))

    def add(self, key, value):
        """Notes what the turn has measured."""
        self.measured.setdefault(key, []).append(value)


def number_of_turns(keys, count, often=()):
    """How many turns a workload has, for the progress bar."""
    return len(keys) + count * len(turns_of(list(keys), often, 0))
