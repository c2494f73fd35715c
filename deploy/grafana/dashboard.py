#!/usr/bin/env python3
"""Prints the dashboard: deploy/grafana/dashboard.py > deploy/grafana/deskgate.json

Each row of the dashboard is a list of panels below. tests/deploy.rs compares the output with deskgate.json, and the metrics of the
panels with those of the program.
"""

import json

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS = 24

RATE = "$__rate_interval"


def of(metric, **labels):
    """A selector for the gateways that are chosen at the top of the page."""
    wanted = {"job": "$job", "instance": "$instance", **labels}
    return metric + "{" + ", ".join(f'{name}=~"{value}"' for name, value in wanted.items()) + "}"


def rate(metric, by="", **labels):
    return f"sum by ({by}) (rate({of('deskgate_' + metric, **labels)}[{RATE}]))"


def total(metric, by="instance", **labels):
    return f"sum by ({by}) ({of('deskgate_' + metric, **labels)})"


def quantile(share, metric, by=""):
    buckets = rate(metric + "_bucket", f"{by}, le" if by else "le")
    return f"histogram_quantile({share}, {buckets})"


def quantiles(metric, by=""):
    legend = f"{{{{{by}}}}} " if by else ""
    return [(quantile(share, metric, by), f"{legend}p{round(share * 100)}") for share in (0.5, 0.99)]


def graph(title, unit, targets, description, width=8, stack=False, **options):
    """Lines over time. A target is an expression and its legend."""
    custom = {
        "drawStyle": "line",
        "lineInterpolation": "linear",
        "lineWidth": 1,
        "fillOpacity": 30 if stack else 8,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"mode": "normal" if stack else "none", "group": "A"},
    }
    return {
        "type": "timeseries",
        "title": title,
        "description": description,
        "width": width,
        "height": 8,
        "targets": targets,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0, "custom": custom, **options}, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    }


def steps(*levels):
    """Colours from a value on: the first has none."""
    return {"mode": "absolute", "steps": [{"color": color, "value": value} for value, color in levels]}


GOOD_IS_ONE = steps((None, "red"), (1, "green"))
GOOD_IS_ZERO = steps((None, "green"), (1, "red"))
NEUTRAL = steps((None, "blue"))


def number(title, unit, expression, description, thresholds=NEUTRAL, legend="{{instance}}", mappings=(), width=4):
    """The last value, one per series."""
    return {
        "type": "stat",
        "title": title,
        "description": description,
        "width": width,
        "height": 4,
        "targets": [(expression, legend)],
        "fieldConfig": {"defaults": {"unit": unit, "thresholds": thresholds, "mappings": list(mappings)}, "overrides": []},
        "options": {
            "colorMode": "value",
            "graphMode": "none",
            "justifyMode": "auto",
            "orientation": "auto",
            "textMode": "auto",
            "wideLayout": True,
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        },
    }


def named(zero, one):
    return [{"type": "value", "options": {"0": {"text": zero, "index": 0}, "1": {"text": one, "index": 1}}}]


def table(title, expression, description, hidden, width=12):
    """The labels of the series that exist now."""
    panel = number(title, "none", expression, description, legend="", width=width)
    unseen = {name: True for name in ("Time", "Value", "__name__", *hidden)}
    return {
        **panel,
        "type": "table",
        "format": "table",
        "options": {"showHeader": True, "cellHeight": "sm"},
        "transformations": [{"id": "organize", "options": {"excludeByName": unseen, "indexByName": {}, "renameByName": {}}}],
    }


ROWS = {
    "Traffic": [
        graph("Requests", "reqps", [(rate("requests_total", "code_class"), "{{code_class}}")],
              "Requests answered, by class of the status.", stack=True),
        graph("Requests by rule", "reqps", [(rate("requests_total", "rule"), "{{rule}}")],
              "Requests answered, by rule. The gateway's own endpoints and requests without a rule are in parentheses.", stack=True),
        graph("Requests by method", "reqps", [(rate("requests_total", "method"), "{{method}}")],
              "Requests answered, by method.", stack=True),
        graph("Errors", "percentunit", [
            ('job:deskgate_gateway_errors:ratio_rate5m{job=~"$job"}', "gateway (1005, 1503)"),
            ('job:deskgate_upstream_errors:ratio_rate5m{job=~"$job"}', "upstreams (all other 5xx)"),
        ], "Share of requests that failed, by who failed; from the recording rules. The alerts compare it with 0.1 % and 0.5 %."),
        graph("Refusals by code", "reqps", [(rate("refusals_total", "code"), "{{code}}")],
              "Requests that the gateway refused, by error code. docs/api.md has the codes.", stack=True),
        graph("Request duration", "s", quantiles("request_seconds"),
              "From the request head to the end of the response. Long polls, downloads and event streams last long on purpose."),
        graph("Request duration by rule, p99", "s", [(quantile(0.99, "request_seconds", "rule"), "{{rule}}")],
              "The slowest hundredth of the requests of each rule."),
        graph("Time spent in the gateway", "s", quantiles("overhead_seconds"),
              "What the gateway adds to requests of rules until the response head, without the time of the upstream."),
        graph("Requests in flight", "short", [(total("requests_in_flight"), "{{instance}}")], "Requests that have begun and not ended."),
        graph("Client connections", "short", [(total("connections_open"), "{{instance}} open"), (total("connections_limit"), "{{instance}} limit")],
              "Open client connections, WebSockets included, and how many there may be.", width=12),
        graph("Connections refused", "cps", [(rate("connections_refused_total", "reason"), "{{reason}}")],
              "Connections closed before a request was read, by reason.", width=12),
    ],
    "Decisions": [
        graph("Tokens", "reqps", [(rate("authn_total", "result, reason"), "{{result}} {{reason}}")],
              "Checks of credentials, by result and reason.", stack=True),
        graph("Where tokens come from", "reqps", [(rate("authn_total", "source"), "{{source}}")],
              "Checks of credentials, by the place of the token in the request. Cached tokens count as any."),
        graph("Rules", "reqps", [(rate("authz_total", "verdict"), "{{verdict}}")], "Decisions of rules.", stack=True),
        graph("Denied by rule", "reqps", [(rate("authz_total", "rule", verdict="deny"), "{{rule}}")], "Requests that a rule denied."),
        graph("Shadow mode", "reqps", [(rate("shadow_total", "rule, verdict"), "{{rule}} {{verdict}}")],
              "What rules and rate limits in shadow mode would have decided."),
        graph("Spoofed headers removed", "reqps", [(rate("identity_headers_removed_total", "kind"), "{{kind}}")],
              "Headers that only the gateway may set, removed from requests of clients."),
    ],
    "Sign-in": [
        graph("Sign-ins", "reqps", [(rate("signin_total", "method, result"), "{{method}} {{result}}")],
              "Attempts to sign in, by method and result.", stack=True),
        graph("Sign-ins by client", "reqps", [(rate("signin_total", "client, result"), "{{client}} {{result}}")],
              "Attempts to sign in, by client and result.", stack=True),
        graph("QR codes", "reqps", [(rate("tickets_total", "state"), "{{state}}")], "Tickets of QR codes, by the state that they reached."),
        graph("WeCom calls", "s", [(quantile(0.99, "platform_seconds", "call"), "{{call}} p99")], "Duration of calls to WeCom."),
        graph("WeCom errors", "reqps", [(rate("platform_errors_total", "call, class"), "{{call}} {{class}}")],
              "Failed calls to WeCom. invalid_code and unknown_member are answers about a person, not failures of WeCom."),
        graph("Members rechecked", "reqps", [(rate("platform_rechecks_total", "result"), "{{result}}")],
              "Employees whom WeCom was asked about, by result. One gateway of a fleet does it."),
        graph("Password checks", "short", [(total("password_checks", "instance, state"), "{{instance}} {{state}}")],
              "Hashes of agents' passwords that run or wait.", width=24),
        number("WeCom circuit", "none", total("platform_circuit_open"), "Open: the gateway does not call WeCom for a while, after failures in a row.",
               GOOD_IS_ZERO, mappings=named("closed", "open"), width=6),
        number("WeCom token age", "s", total("platform_token_age_seconds"), "Age of the access token. WeCom accepts it for two hours. 0: none is needed.",
               steps((None, "green"), (7800, "red")), width=6),
        number("Recheck overdue", "s", total("platform_recheck_overdue_seconds"), "How far the recheck of members is behind platform.recheck, or for how long it has had no answer.",
               steps((None, "green"), (3600, "yellow"), (7200, "red")), width=6),
        number("Most password checks at once", "short", total("password_checks_most"), "Since the start. Each takes 19 MiB of memory.", width=6),
    ],
    "Sessions": [
        graph("Live sessions", "short", [(total("sessions_live"), "{{instance}}")],
              "Sessions in the store. Gateways that share a store show the same number."),
        graph("Sessions issued", "reqps", [(rate("sessions_issued_total", "method"), "{{method}}")], "New sessions, by method of the sign-in."),
        graph("Sessions ended", "reqps", [(rate("sessions_ended_total", "cause"), "{{cause}}")], "Ends of sessions, by cause. docs/operations.md has the causes."),
        graph("Revocation delay", "s", quantiles("revocation_seconds"),
              "From a change of a session, made on any gateway, to its effect here. Target: 100 ms."),
        graph("Session cache", "reqps", [(rate("session_cache_total", "result"), "{{result}}")], "Lookups in the session cache.", stack=True),
        graph("Change feed lag", "s", [(total("feed_lag_seconds"), "{{instance}}")],
              "Time since the change feed of the shared store was last read to its end; 0 with an embedded store."),
    ],
    "Sockets": [
        graph("Open WebSockets", "short", [(total("websockets_open", "rule"), "{{rule}}")], "Open WebSockets, by rule.", stack=True),
        graph("WebSockets closed", "cps", [(rate("websockets_closed_total", "cause"), "{{cause}}")], "Closed WebSockets, by cause."),
        graph("Close delay", "s", quantiles("websocket_close_seconds"),
              "From the end of a session to the close frame on its WebSockets. Target: 100 ms."),
        graph("Open exchanges", "short", [(total("exchanges_open", "rule"), "{{rule}}")],
              "Proxied requests that have run longer than a second, by rule: downloads, uploads, event streams.", stack=True),
        graph("Exchanges cut", "cps", [(rate("exchanges_cut_total", "cause"), "{{cause}}")],
              "Proxied requests that were cut because their session ended or their rule no longer admits them, or at the end of a drain."),
        graph("Tokens in query strings", "reqps", [(rate("websocket_query_tokens_total", "instance"), "{{instance}}")],
              "WebSocket handshakes with ?token=, which is deprecated."),
    ],
    "Limits": [
        graph("Rate limits", "reqps", [(rate("rate_total", "verdict"), "{{verdict}}")], "Charges to rate limits, by verdict."),
        graph("Refused by rate limits", "reqps", [(rate("rate_total", "rule", verdict="deny"), "{{rule}}")], "Requests refused with 1429, by rule."),
        graph("Leases of shared rate limits", "reqps", [(rate("rate_lease_total", "result"), "{{result}}")],
              "Questions to the shared store about shared rate limits, by result."),
        graph("Limits reached", "cps", [(rate("limit_reached_total", "instance, limit"), "{{instance}} {{limit}}")],
              "How often a limit of [limits] was reached. saturated: requests refused because cores or memory were used up.", width=24),
    ],
    "Upstreams and store": [
        graph("Upstream response time", "s", quantiles("upstream_seconds", "upstream"), "From the choice of the upstream to its response head."),
        graph("Healthy addresses", "short", [(total("upstream_healthy", "instance, upstream"), "{{instance}} {{upstream}}")],
              "Addresses that get requests: neither unhealthy, nor ejected, nor unresolved."),
        graph("Failed attempts", "cps", [(rate("upstream_failures_total", "upstream, address, reason"), "{{upstream}} {{address}} {{reason}}")],
              "Failed attempts to reach an address of an upstream, by reason."),
        graph("Retries", "cps", [(rate("upstream_retries_total", "upstream"), "{{upstream}}")], "Requests sent to another address after a failed attempt."),
        graph("Ejections", "cps", [(rate("upstream_ejections_total", "upstream, address"), "{{upstream}} {{address}}")],
              "Addresses that were taken out after failures in a row."),
        graph("Store calls", "s", [(quantile(0.99, "store_seconds", "op"), "{{op}} p99")], "Duration of calls to the shared store."),
        graph("Store calls by result", "reqps", [(rate("store_seconds_count", "result"), "{{result}}")], "Calls to the shared store.", width=24),
        number("Store", "none", total("store_up"), "Whether the store can be read and written.", GOOD_IS_ONE, mappings=named("down", "up"), width=8),
        number("Directory", "none", total("directory_up"), "Whether the directory can be read and written.", GOOD_IS_ONE, mappings=named("down", "up"), width=8),
        number("Change feed", "none", total("revocation_feed_up"), "Whether changes of other gateways are known here.", GOOD_IS_ONE,
               mappings=named("down", "up"), width=8),
    ],
    "Process": [
        number("Up", "none", f"sum by (instance) ({of('up')})", "Whether Prometheus can scrape the gateway.", GOOD_IS_ONE, mappings=named("down", "up")),
        number("Uptime", "s", f"time() - {total('process_start_time_seconds')}", "Since the start of the process."),
        number("Development mode", "none", total("development_mode"), "Must be off in production.", GOOD_IS_ZERO, mappings=named("off", "on")),
        number("Links without proof", "none", total("bind_without_proof"), "Must be off in production.", GOOD_IS_ZERO, mappings=named("off", "on")),
        number("Last reload", "none", total("config_reload_success"), "Whether the last load of configuration and rules succeeded.", GOOD_IS_ONE,
               mappings=named("refused", "ok")),
        number("Last certificate reload", "none", total("tls_reload_success"), "Whether the certificate files were valid when they were last read.",
               GOOD_IS_ONE, mappings=named("refused", "ok")),
        number("Time since the last reload", "s", f"time() - {total('config_reload_timestamp_seconds')}", "Since the last successful load.", width=8),
        number("Rules", "short", total("rules_loaded"), "Rules that are loaded.", width=8),
        number("Certificate expires in", "s", f"min by (certificate) ({of('deskgate_tls_not_after_seconds')}) - time()", "Until the certificate expires.",
               steps((None, "red"), (3 * 86400, "yellow"), (14 * 86400, "green")), legend="{{certificate}}", width=8),
        number("Panics", "short", f"sum by (instance) (increase({of('deskgate_panics_total')}[$__range]))", "In the chosen time. Each is a bug.", GOOD_IS_ZERO, width=6),
        number("Log lines dropped", "short", f"sum by (instance) (increase({of('deskgate_log_lines_dropped_total')}[$__range]))",
               "In the chosen time. The log is written more slowly than it grows.", GOOD_IS_ZERO, width=6),
        number("Audit lines dropped", "short", f"sum by (instance) (increase({of('deskgate_audit_lines_dropped_total')}[$__range]))",
               "In the chosen time, by an audit stream of its own. The directory's audit log has the records.", GOOD_IS_ZERO, width=6),
        number("Clock jumps", "short", f"sum by (instance) (increase({of('deskgate_clock_jumps_total')}[$__range]))",
               "In the chosen time. The clock was set, or the machine stood still.", GOOD_IS_ZERO, width=6),
        table("Versions", of("deskgate_build_info"), "All gateways should have the same version.", ["job"]),
        table("Configurations", of("deskgate_config_hash_info"), "All gateways should have the same digests.", ["job"]),
        graph("CPU", "short", [(rate("process_cpu_seconds_total", "instance"), "{{instance}}")], "Cores in use."),
        graph("Memory", "bytes", [(total("process_resident_memory_bytes"), "{{instance}} resident"), (f"{total('memory_limit_bytes')} > 0", "{{instance}} limit")],
              "Memory that the process holds, and beyond which it refuses new requests. No limit: none is set, and the control group has none."),
        graph("Virtual memory", "bytes", [(total("process_virtual_memory_bytes"), "{{instance}}")], "Address space that the process has reserved."),
        graph("File descriptors", "short", [(total("process_open_fds"), "{{instance}} open"), (total("process_max_fds"), "{{instance}} limit")],
              "Open files and sockets, and how many there may be."),
        graph("Threads", "short", [(total("process_threads"), "{{instance}}")], "Threads of the process."),
        graph("Spans of traces", "cps", [(rate("trace_spans_total", "result"), "{{result}}")],
              "Spans of sampled requests, by what became of them. exported: the collector has taken them."),
    ],
}


def variables():
    def query(name, label, text, multi):
        return {
            "name": name, "label": label, "type": "query", "datasource": DATASOURCE,
            "query": {"query": text, "refId": "PrometheusVariableQueryEditor-VariableQuery"},
            "refresh": 2, "sort": 1, "multi": multi, "includeAll": multi, "hide": 0, "skipUrlSync": False, "regex": "", "options": [],
            **({"current": {"selected": True, "text": ["All"], "value": ["$__all"]}} if multi else {}),
        }

    source = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "refresh": 1, "hide": 0,
              "multi": False, "includeAll": False, "skipUrlSync": False, "regex": "", "options": []}
    return [
        source,
        query("job", "Job", "label_values(deskgate_build_info, job)", multi=False),
        query("instance", "Instance", 'label_values(deskgate_build_info{job=~"$job"}, instance)', multi=True),
    ]


def finished(panel, number, left, top):
    """The panel as Grafana stores it."""
    panel = dict(panel)
    width, height, output = panel.pop("width"), panel.pop("height"), panel.pop("format", "time_series")
    instant = panel["type"] != "timeseries"
    panel["targets"] = [
        {
            "refId": chr(ord("A") + index), "datasource": DATASOURCE, "editorMode": "code", "expr": expression, "legendFormat": legend or "__auto",
            "format": output, "range": not instant, "instant": instant,
        }
        for index, (expression, legend) in enumerate(panel["targets"])
    ]
    return {"id": number, **panel, "datasource": DATASOURCE, "gridPos": {"h": height, "w": width, "x": left, "y": top}}


def panels():
    placed, top, number = [], 0, 1
    for title, row in ROWS.items():
        placed.append({"id": number, "type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": {"h": 1, "w": COLUMNS, "x": 0, "y": top}})
        left, top, number, height = 0, top + 1, number + 1, 0
        for panel in row:
            if left + panel["width"] > COLUMNS or (height and panel["height"] != height):
                left, top = 0, top + height
            height = panel["height"]
            placed.append(finished(panel, number, left, top))
            left, number = left + panel["width"], number + 1
        top += height
    return placed


def dashboard():
    return {
        "uid": "deskgate",
        "title": "deskgate",
        "description": "The authentication gateway: every metric that it has.",
        "tags": ["deskgate"],
        "schemaVersion": 42,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "fiscalYearStartMonth": 0,
        "liveNow": False,
        "timezone": "browser",
        "weekStart": "",
        "preload": False,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timepicker": {},
        "links": [],
        "annotations": {"list": [{
            "builtIn": 1, "datasource": {"type": "grafana", "uid": "-- Grafana --"}, "enable": True, "hide": True,
            "iconColor": "rgba(0, 211, 255, 1)", "name": "Annotations & Alerts", "type": "dashboard",
        }]},
        "templating": {"list": variables()},
        "panels": panels(),
    }


print(json.dumps(dashboard(), indent=2, ensure_ascii=False))
