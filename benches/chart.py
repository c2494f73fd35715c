"""The bar chart of docs/benchmarks.md, written as SVG without any library."""

from xml.sax.saxutils import escape

COLUMNS, PANEL, GAP, MARGIN = 2, 520, 20, 16
LABEL, BAR, ROW, HEAD = 215, 200, 18, 34

# Legible on light and dark pages: the picture brings its own background for both.
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #24292f; }
.title { font-weight: 600; font-size: 13px; }
.unit, .value { fill: #57606a; }
.value { stroke: #ffffff; stroke-width: 4px; paint-order: stroke; }
.page { fill: #ffffff; }
.other { fill: #afb8c1; }
.ours { fill: #0969da; }
.base { stroke: #57606a; stroke-dasharray: 3 3; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .unit, .value { fill: #9198a1; }
  .value { stroke: #0d1117; }
  .page { fill: #0d1117; }
  .other { fill: #565f69; }
  .ours { fill: #4493f8; }
  .base { stroke: #9198a1; }
}
"""


def is_ours(workload, row):
    """Whether a row is deskgate's. Workloads without other contestants have no names in their keys."""
    return row["key"].startswith("deskgate") or not any(one["key"].startswith("deskgate") for one in workload["rows"])


def panel(workload, left, top):
    """The elements of one workload and their height."""
    most = max(row["median"] for row in workload["rows"]) or 1
    height = HEAD + len(workload["rows"]) * ROW
    parts = [f'<text class="title" x="{left}" y="{top + 13}">{escape(workload["title"])}'
             f'<tspan class="unit" font-weight="400"> · {escape(workload["unit"])}</tspan></text>']
    base = next((row for row in workload["rows"] if row["key"] == workload["base"]), None)
    if base:
        # Below the values, which have an outline in the colour of the page.
        x = left + LABEL + BAR * base["median"] / most
        parts.append(f'<line class="base" x1="{x:.1f}" x2="{x:.1f}" y1="{top + HEAD - 10}" y2="{top + height - 10}"/>')
    for number, row in enumerate(workload["rows"]):
        y, width = top + HEAD - 10 + number * ROW, max(1.0, BAR * row["median"] / most)
        kind = "ours" if is_ours(workload, row) else "other"
        value = f'{row["median"]:.1f}'
        if row.get("times") and row["key"] != workload["base"]:
            value += f' ({row["times"]:.2f} ×)'
        parts.append(f'<text x="{left + LABEL - 8}" y="{y + 12}" text-anchor="end">{escape(row["title"])}</text>'
                     f'<rect class="{kind}" x="{left + LABEL}" y="{y + 2}" width="{width:.1f}" height="{ROW - 5}" rx="2"/>'
                     f'<text class="value" x="{left + LABEL + width + 6:.1f}" y="{y + 12}">{value}</text>')
    return parts, height


def draw(workloads):
    """The chart of all workloads that compare something, each in the shorter column."""
    heights, parts = [MARGIN] * COLUMNS, []
    for workload in workloads:
        column = heights.index(min(heights))
        elements, height = panel(workload, MARGIN + column * (PANEL + GAP), heights[column])
        parts += elements
        heights[column] += height + GAP // 2
    width, height = COLUMNS * PANEL + (COLUMNS - 1) * GAP + 2 * MARGIN, max(heights) + MARGIN
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
            f'role="img" aria-label="Medians of the benchmark, less is better">')
    return "\n".join([head, f"<style>{STYLE}</style>", f'<rect class="page" width="{width}" height="{height}"/>', *parts, "</svg>", ""])
