"""A stand-in for a Kubernetes API server: it stores what Helm creates, so that Helm's own code renders and installs a chart.

It knows the kinds that the chart has, and nothing of what a real cluster does with them.
"""

import http.server
import json
import re
import threading

KINDS = {
    "v1": ["ConfigMap", "Namespace", "Secret", "Service", "ServiceAccount"],
    "apps/v1": ["Deployment"],
    "autoscaling/v2": ["HorizontalPodAutoscaler"],
    "monitoring.coreos.com/v1": ["PrometheusRule", "ServiceMonitor"],
    "networking.k8s.io/v1": ["Ingress", "NetworkPolicy"],
    "policy/v1": ["PodDisruptionBudget"],
}


def plural(kind):
    name = kind.lower()
    if name.endswith("y"):
        return name[:-1] + "ies"
    return name + ("es" if name.endswith("s") else "s")


def resources(version):
    verbs = ["create", "delete", "get", "list", "patch", "update"]
    rows = [{"name": plural(kind), "singularName": "", "namespaced": kind != "Namespace", "kind": kind, "verbs": verbs} for kind in KINDS[version]]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": rows}


def groups():
    def entry(version):
        group, name = version.split("/")
        this = {"groupVersion": version, "version": name}
        return {"name": group, "versions": [this], "preferredVersion": this}

    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [entry(version) for version in KINDS if "/" in version]}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def missing(self):
        self.answer(404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404})

    def do_GET(self):
        path = self.path.split("?")[0]
        if path == "/version":
            return self.answer(200, {"major": "1", "minor": "34", "gitVersion": "v1.34.0"})
        if path == "/api":
            return self.answer(200, {"kind": "APIVersions", "versions": ["v1"]})
        if path == "/apis":
            return self.answer(200, groups())
        version = re.fullmatch(r"/apis?/(.+)", path)
        if version and version[1] in KINDS:
            return self.answer(200, resources(version[1]))
        if path in self.server.objects:
            return self.answer(200, self.server.objects[path])
        if path.endswith("/secrets"):
            return self.answer(200, {"kind": "SecretList", "apiVersion": "v1", "metadata": {}, "items": []})
        return self.missing()

    def store(self, status, path):
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["Content-Type"] == "application/json":
            stored = json.loads(data)
            if status == 201:
                path = f"{path}/{stored['metadata']['name']}"
            self.server.objects[path] = stored
            return self.answer(status, stored)
        # Helm's record of the release, in protobuf: it comes back as it was sent.
        self.send_response(status)
        self.send_header("Content-Type", self.headers["Content-Type"])
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_POST(self):
        self.store(201, self.path.split("?")[0])

    def do_PUT(self):
        self.store(200, self.path.split("?")[0])


class Cluster:
    """Runs on a free port of loopback while it is used as a context."""

    def __enter__(self):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.objects = {}
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    @property
    def kubeconfig(self):
        address = f"http://127.0.0.1:{self.server.server_address[1]}"
        return json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "stub",
            "clusters": [{"name": "stub", "cluster": {"server": address}}],
            "users": [{"name": "stub", "user": {}}],
            "contexts": [{"name": "stub", "context": {"cluster": "stub", "user": "stub"}}],
        })

    def created(self):
        """What Helm has created, without its own record of the release."""
        return list(self.server.objects.values())
