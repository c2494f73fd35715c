"""What the benchmark prints, and the section of docs/benchmarks.md, from the measured JSON."""

import re

import chart

IMAGE = "images/benchmarks.svg"
BEGIN, END = "<!-- make bench: begin -->", "<!-- make bench: end -->"


def spread(row):
    return f"{row['least']:.1f}–{row['most']:.1f}"


def times(row):
    if not row.get("times"):
        return ""
    low, high = row["times_quartiles"]
    return f"{row['times']:.2f} ({low:.2f}–{high:.2f})"


def outcome(target):
    return "met" if target["met"] else "MISSED"


def measured(target):
    low, high = target["quartiles"]
    return f"{target['measured']:.2f} ({low:.2f}–{high:.2f})"


def limit(target):
    return f"≤ {target['limit']:g} {target['unit']}"


def base_title(workload):
    return next((row["title"] for row in workload["rows"] if row["key"] == workload["base"]), "")


def ratio_head(workload):
    return f"× {base_title(workload)}" if workload["base"] else ""


def text(results):
    """The tables as plain text."""
    lines = []
    for workload in results["workloads"]:
        width = max(40, *(len(row["title"]) + 2 for row in workload["rows"]))
        lines += ["", f"{workload['title']}: {workload['unit']}" if workload["unit"] else workload["title"],
                  *([workload["note"]] if workload["note"] else []),
                  f"{'':<{width}}{'median':>8}  {'least–most':<14}{ratio_head(workload)}".rstrip()]
        lines += [f"{row['title']:<{width}}{row['median']:>8.1f}  {spread(row):<14}{times(row)}".rstrip() for row in workload["rows"]]
    if results["targets"]:
        lines += ["", "Targets of deskgate: median (middle half of the rounds)"]
        lines += [f"{target['text']:<34}{measured(target):<22}{limit(target):<32}{outcome(target)}" for target in results["targets"]]
    lines += ["", *results["notes"]]
    return "\n".join(lines)


def table(head, rows):
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(row) + " |" for row in rows), ""]


def method(results):
    machine, options = results["machine"], results["options"]
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    return (f"Measured on {results['date']} on {machine['cores']} cores ({machine['cpu']}), with a load average of "
            f"{machine['load_before']:.1f} before: medians of {options['rounds']} interleaved rounds of {options['seconds']} s. {versions}.")


def matrix(results):
    """Contestants against workloads of requests: CPU microseconds."""
    workloads = [one for one in results["workloads"] if one["unit"] == "CPU µs per request" and one["key"] not in ("sessions", "rules")]
    titles = {row["key"]: row["title"] for workload in workloads for row in workload["rows"]}
    order = [key for key in results["contestants"] if key in titles]
    cells = {(workload["key"], row["key"]): f"{row['median']:.1f}" for workload in workloads for row in workload["rows"]}
    rows = [[titles[key], *(cells.get((workload["key"], key), "") for workload in workloads)] for key in order]
    return table(["CPU µs per request", *(workload["title"] for workload in workloads)], rows) if workloads else []


def section(results):
    """The section of the page."""
    lines = [method(results), "", f"![Medians of each workload, less is better]({IMAGE})", ""]
    rows = [[target["text"], measured(target), limit(target), outcome(target)] for target in results["targets"]]
    lines += table(["deskgate", "median (middle half of the rounds)", "target", ""], rows)
    lines += matrix(results)
    lines += ["<details><summary>All medians with their spread</summary>", ""]
    for workload in results["workloads"]:
        lines += [f"**{workload['title']}**" + (f", {workload['unit']}. " if workload["unit"] else ". ") + workload["note"], ""]
        rows = [[row["title"], f"{row['median']:.1f}", spread(row), times(row)] for row in workload["rows"]]
        lines += table(["", "median", "least–most", ratio_head(workload)], [[cell.strip() for cell in row] for row in rows])
    lines += ["</details>", ""]
    lines += [f"- {note}" for note in results["notes"]]
    return "\n".join(line.rstrip() for line in lines).strip() + "\n"


def with_section(page, new):
    """The page with another text between its marks."""
    if BEGIN not in page or END not in page:
        raise ValueError(f"no {BEGIN} … {END}")
    return re.sub(f"{re.escape(BEGIN)}.*{re.escape(END)}", lambda _: f"{BEGIN}\n{new}{END}", page, flags=re.S)


def write_docs(results, docs):
    """Rewrites the section of the page and its chart."""
    page = docs / "benchmarks.md"
    page.write_text(with_section(page.read_text(), section(results)))
    (docs / IMAGE).write_text(chart.draw(compared(results)))


def compared(results):
    return [workload for workload in results["workloads"] if workload["unit"]]
