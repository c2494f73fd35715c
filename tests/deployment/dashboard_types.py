#!/usr/bin/env python3
"""Compiles the dashboard as a TypeScript value of Grafana's own types. Argument: a folder in which npm has installed them."""

import json
import pathlib
import subprocess
import sys

DASHBOARD = pathlib.Path(__file__).resolve().parent.parent.parent / "deploy" / "grafana" / "deskgate.json"

# Enumerations are their values in JSON.
HEADER = """
import type { Dashboard, FieldConfig, Panel, RowPanel, VariableModel } from "@grafana/schema";
import type { Options as StatOptions } from "./node_modules/@grafana/schema/dist/types/raw/composable/stat/panelcfg/x/types.gen";
import type { Options as TableOptions } from "./node_modules/@grafana/schema/dist/types/raw/composable/table/panelcfg/x/types.gen";
import type { FieldConfig as LineConfig, Options as LineOptions } from "./node_modules/@grafana/schema/dist/types/raw/composable/timeseries/panelcfg/x/types.gen";
type Plain<T> = T extends string ? `${T}` : T extends number | boolean | null | undefined ? T : T extends object ? { [K in keyof T]: Plain<T[K]> } : T;
"""

OPTIONS = {"timeseries": "LineOptions", "stat": "StatOptions", "table": "TableOptions"}


def program(dashboard):
    def value(name, kind, content):
        return f"export const {name}: Plain<{kind}> = {json.dumps(content)};\n"

    text = HEADER + value("dashboard", "Omit<Dashboard, 'panels' | 'templating'>", {k: v for k, v in dashboard.items() if k not in ("panels", "templating")})
    for variable in dashboard["templating"]["list"]:
        text += value(f"variable_{variable['name']}", "VariableModel", variable)
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            text += value(f"row_{panel['id']}", "RowPanel", panel)
            continue
        text += value(f"panel_{panel['id']}", "Omit<Panel, 'options' | 'fieldConfig'>", {k: v for k, v in panel.items() if k not in ("options", "fieldConfig")})
        text += value(f"options_{panel['id']}", f"Partial<{OPTIONS[panel['type']]}>", panel["options"])
        defaults = dict(panel["fieldConfig"]["defaults"])
        if panel["type"] == "timeseries":
            text += value(f"lines_{panel['id']}", "LineConfig", defaults.pop("custom"))
        text += value(f"field_{panel['id']}", "FieldConfig", defaults)
    return text


def compile_(folder, dashboard):
    (folder / "dashboard.ts").write_text(program(dashboard))
    options = ["--noEmit", "--strict", "--skipLibCheck", "--module", "esnext", "--moduleResolution", "bundler", "--target", "es2022"]
    return subprocess.run(["node_modules/.bin/tsc", *options, "dashboard.ts"], cwd=folder, capture_output=True, text=True, check=False)


def main():
    folder, dashboard = pathlib.Path(sys.argv[1]), json.loads(DASHBOARD.read_text())
    result = compile_(folder, dashboard)
    if result.returncode != 0:
        print(result.stdout)
        return 1
    broken = json.loads(json.dumps(dashboard))
    next(panel for panel in broken["panels"] if panel["type"] == "stat")["options"]["colorMode"] = "loud"
    if compile_(folder, broken).returncode == 0:
        print("a dashboard with an unknown option passes")
        return 1
    print(f"{len(dashboard['panels'])} panels and rows have Grafana's types")
    return 0


if __name__ == "__main__":
    sys.exit(main())
