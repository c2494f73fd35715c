"""From the values of the rounds to medians, ratios and targets."""

import statistics


def quartiles(values):
    if len(values) == 1:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def ratios(values, base):
    """Round by round, because conditions differ between rounds more than within one."""
    return [one / other for one, other in zip(values, base)]


def row_of(key, title, values, base):
    """One row of a workload: the median, the spread, and the same of the ratios to the base row."""
    row = {"key": key, "title": title, "values": values, "median": statistics.median(values), "least": min(values),
           "most": max(values)}
    if base:
        times = ratios(values, base)
        row["times"], row["times_quartiles"] = statistics.median(times), quartiles(times)
    return row


def workload_of(key, title, unit, base, titles, values, note=""):
    """The rows of a workload. `values` has a list of rounds for each key; `base` is the key that ratios refer to."""
    rows = [row_of(name, titles[name], rounds, values.get(base)) for name, rounds in values.items()]
    return {"key": key, "title": title, "unit": unit, "base": base if base in values else None, "note": note, "rows": rows}


def verdict(target, workloads):
    """How a target was met; None if what it is about was not measured."""
    workload = next((one for one in workloads if one["key"] == target.workload), None)
    rows = {row["key"]: row["values"] for row in workload["rows"]} if workload else {}
    if target.row not in rows or (target.over and target.over not in rows):
        return None
    values = ratios(rows[target.row], rows[target.over]) if target.over else rows[target.row]
    measured = statistics.median(values)
    # Compared as it is shown, so that no line says that 1.00 is above 1.00.
    return {"text": target.text, "limit": target.limit, "unit": target.unit, "measured": measured,
            "quartiles": quartiles(values), "met": round(measured, 2) <= target.limit}
