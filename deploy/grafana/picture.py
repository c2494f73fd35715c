#!/usr/bin/env python3
"""Draws the dashboard from a Prometheus server, for a look at it without Grafana.

    deploy/grafana/picture.py --prometheus http://127.0.0.1:9090 --minutes 10 --rows 'Traffic,Sign-in' --output dashboard.png

Every panel is drawn at its place, with the values that its own queries return; fonts, colours and scales are not Grafana's. Needs
chromium.
"""

import argparse
import html
import json
import pathlib
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request

DASHBOARD = pathlib.Path(__file__).resolve().parent / "deskgate.json"
COLORS = ["#7eb26d", "#eab839", "#6ed0e0", "#ef843c", "#e24d42", "#1f78c1", "#ba43a9", "#705da0", "#508642", "#cca300"]
CELL_WIDTH, CELL_HEIGHT = 56, 28
STYLE = """
body { margin: 0; background: #111217; color: #d0d1d5; font: 12px sans-serif; position: relative }
.panel { position: absolute; background: #181b1f; border: 1px solid #2c3036; box-sizing: border-box; padding: 6px 8px; overflow: hidden }
.title { font-weight: bold; white-space: nowrap } .row { position: absolute; font-size: 15px; font-weight: bold; padding: 8px 4px }
.legend { position: absolute; bottom: 5px; left: 8px; right: 8px; white-space: nowrap; overflow: hidden; font-size: 11px }
.legend i { display: inline-block; width: 12px; height: 3px; margin: 0 4px 3px 0 } .legend span { margin-right: 12px }
.number { font-size: 26px; padding-top: 14px } .small { font-size: 12px; color: #9fa1a7 } .none { color: #6c6f76; padding-top: 30px; text-align: center }
table { border-collapse: collapse; margin-top: 8px } td, th { text-align: left; padding: 2px 14px 2px 0 }
"""


def ask(server, path, **parameters):
    with urllib.request.urlopen(f"{server}/api/v1/{path}?{urllib.parse.urlencode(parameters)}", timeout=10) as answer:
        return json.load(answer)["data"]["result"]


def resolved(expression, minutes):
    for name, value in {"$job": ".+", "$instance": ".+", "$__rate_interval": "1m", "$__range": f"{minutes}m"}.items():
        expression = expression.replace(name, value)
    return expression


def legend_of(target, labels):
    text = target["legendFormat"]
    for name, value in labels.items():
        text = text.replace("{{" + name + "}}", value)
    return ", ".join(labels.values()) if text == "__auto" else text


def scaled(value, unit):
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    steps = {"s": [(86400, "d"), (3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms"), (1e-6, "µs")], "bytes": [(2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")]}
    fallback = [(1e6, "M"), (1e3, "k")]
    suffix = {"reqps": " req/s", "cps": " c/s"}.get(unit, "")
    for size, name in steps.get(unit, fallback):
        if abs(value) >= size:
            return f"{value / size:.3g} {name}{suffix}"
    return f"{value:.3g}{suffix}"


def graph(panel, series, width, height, begin, end):
    unit, stacked = panel["fieldConfig"]["defaults"]["unit"], panel["fieldConfig"]["defaults"]["custom"]["stacking"]["mode"] == "normal"
    left, top, right, bottom = 58, 26, width - 10, height - 44
    base, lines = {}, []
    for name, values in series:
        points = []
        for moment, value in values:
            value = float(value)
            if value != value:
                continue
            if stacked:
                value = base[moment] = base.get(moment, 0) + value
            points.append((moment, value))
        lines.append((name, points))
    highest = max((value for _, points in lines for _, value in points), default=0) or 1
    x = lambda moment: left + (moment - begin) / (end - begin) * (right - left)
    y = lambda value: bottom - value / highest / 1.08 * (bottom - top)
    parts = [f'<svg width="{width}" height="{height}" style="position:absolute;left:0;top:0">']
    for share in (0, 0.5, 1):
        parts.append(f'<line x1="{left}" x2="{right}" y1="{y(highest * share)}" y2="{y(highest * share)}" stroke="#2c3036"/>')
        parts.append(f'<text x="{left - 5}" y="{y(highest * share) + 4}" fill="#9fa1a7" font-size="10" text-anchor="end">{scaled(highest * share, unit)}</text>')
    for share in (0.02, 0.5, 0.95):
        clock = time.strftime("%H:%M", time.gmtime(begin + share * (end - begin)))
        parts.append(f'<text x="{left + share * (right - left)}" y="{bottom + 13}" fill="#9fa1a7" font-size="10">{clock}</text>')
    for index, (_, points) in enumerate(lines):
        place = " ".join(f"{x(moment):.1f},{y(value):.1f}" for moment, value in points)
        parts.append(f'<polyline points="{place}" fill="none" stroke="{COLORS[index % len(COLORS)]}" stroke-width="1.3"/>')
    keys = "".join(f'<span><i style="background:{COLORS[index % len(COLORS)]}"></i>{html.escape(name)}</span>' for index, (name, _) in enumerate(lines))
    return "".join(parts) + f'</svg><div class="legend">{keys}</div>'


def number(panel, series):
    defaults = panel["fieldConfig"]["defaults"]
    named = {key: option["text"] for mapping in defaults["mappings"] for key, option in mapping["options"].items()}

    def color(value):
        fitting = [step["color"] for step in defaults["thresholds"]["steps"] if step["value"] is None or value >= step["value"]]
        return {"green": "#73bf69", "red": "#f2495c", "yellow": "#fade2a", "blue": "#8ab8ff"}[fitting[-1]]

    shown = [(name, float(value)) for name, (_, value) in series]
    return "".join(
        f'<div class="number" style="color:{color(value)}">{named.get(str(int(value)), None) or scaled(value, defaults["unit"])}'
        f' <span class="small">{html.escape(name)}</span></div>' for name, value in shown[:2]
    )


def table(panel, rows):
    hidden = panel["transformations"][0]["options"]["excludeByName"]
    names = sorted({name for labels in rows for name in labels if name not in hidden})
    head = "".join(f"<th>{name}</th>" for name in names)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(labels.get(name, ''))}</td>" for name in names) + "</tr>" for labels in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def content(server, panel, width, height, minutes, end):
    begin, found = end - minutes * 60, []
    for target in panel["targets"]:
        expression = resolved(target["expr"], minutes)
        if target["range"]:
            answer = ask(server, "query_range", query=expression, start=begin, end=end, step=max(2, minutes * 60 // 150))
            found += [(legend_of(target, item["metric"]), item["values"]) for item in answer]
        elif panel["type"] == "table":
            found += [item["metric"] for item in ask(server, "query", query=expression, time=end)]
        else:
            found += [(legend_of(target, item["metric"]), item["value"]) for item in ask(server, "query", query=expression, time=end)]
    if not found:
        return '<div class="none">No data</div>'
    if panel["type"] == "timeseries":
        return graph(panel, found, width, height, begin, end)
    return table(panel, found) if panel["type"] == "table" else number(panel, found)


def chosen_panels(rows):
    """The panels of the rows, moved up to where rows are left out."""
    kept, row, shift, end = [], None, 0, 0
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        place = panel["gridPos"]
        if panel["type"] == "row":
            row, shift = panel["title"], place["y"] - end
        if not rows or row in rows:
            place["y"] -= shift
            end = max(end, place["y"] + place["h"])
            kept.append(panel)
    return kept


def page(server, minutes, rows):
    end, parts, bottom = int(time.time()), [], 0
    for panel in chosen_panels(rows):
        place = panel["gridPos"]
        left, top, width, height = place["x"] * CELL_WIDTH, place["y"] * CELL_HEIGHT, place["w"] * CELL_WIDTH - 6, place["h"] * CELL_HEIGHT - 6
        bottom = max(bottom, top + height + 6)
        style = f"left:{left + 6}px;top:{top + 6}px;width:{width}px;height:{height}px"
        if panel["type"] == "row":
            parts.append(f'<div class="row" style="{style}">{html.escape(panel["title"])}</div>')
            continue
        drawn = content(server, panel, width, height, minutes, end)
        parts.append(f'<div class="panel" style="{style}"><div class="title">{html.escape(panel["title"])}</div>{drawn}</div>')
    return f"<!doctype html><meta charset=utf-8><style>{STYLE}</style><body>{''.join(parts)}</body>", 24 * CELL_WIDTH + 12, bottom + 12


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--prometheus", default="http://127.0.0.1:9090")
    arguments.add_argument("--minutes", type=int, default=10)
    arguments.add_argument("--rows", default="", help="titles of rows, separated by commas; all if empty")
    arguments.add_argument("--output", default="dashboard.png")
    chosen = arguments.parse_args()
    text, width, height = page(chosen.prometheus, chosen.minutes, [row for row in chosen.rows.split(",") if row])
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "dashboard.html"
        file.write_text(text)
        subprocess.run(
            ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={folder}/profile",
             f"--window-size={width},{height}", f"--screenshot={pathlib.Path(chosen.output).resolve()}", file.as_uri()],
            check=True, capture_output=True, timeout=120,
        )


if __name__ == "__main__":
    main()
