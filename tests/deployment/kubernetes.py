#!/usr/bin/env python3
"""Checks the manifests and the chart. Argument: a file for the resources of the Prometheus operator, which have other schemas.

Helm itself renders and installs the chart, into a stand-in for a cluster. Every object is then validated, strictly, against the API
schemas of the oldest Kubernetes that the chart allows and of the newest that is known.
"""

import asyncio
import copy
import json
import pathlib
import sys
import tempfile

import helm_sdkpy
import kubernetes_validate
import yaml

import stub_cluster

DEPLOY = pathlib.Path(__file__).resolve().parent.parent.parent / "deploy"
CHART = DEPLOY / "helm" / "deskgate"
VERSIONS = ("1.25.0", kubernetes_validate.latest_version())

# Values as operators set them, by what they try.
VALUES = {
    "defaults": {},
    "everything": {
        "image": {"digest": "sha256:" + "0" * 64},
        "imagePullSecrets": [{"name": "registry"}],
        "config": "[server]\nlisten = [\"0.0.0.0:8080\"]\n",
        "rules": {"desk.toml": "# none\n"},
        "secret": {"name": "desk-secrets", "create": True, "data": {"fleet.secret": "x"}},
        "autoscaling": {"connectionsPerPod": 20000},
        "podAnnotations": {"a": "b"},
        "podLabels": {"team": "desk"},
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "gateways", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
        "priorityClassName": "high",
        "service": {"annotations": {"a": "b"}},
        "ingress": {"enabled": True},
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}, "runbookUrl": "https://wiki.example.com/runbook"},
        "dashboard": {"enabled": True},
    },
    "fixed size": {"autoscaling": {"enabled": False}, "replicas": 2, "networkPolicy": {"enabled": False}, "podDisruptionBudget": {"maxUnavailable": "50%"}},
}

# Values that the chart must refuse, with a word of the reason.
REFUSED = {
    "an unknown value": ({"replica": 3}, "replica"),
    "a value of another type": ({"replicas": "three"}, "replicas"),
    "a digest that is none": ({"image": {"digest": "latest"}}, "digest"),
    "a rule file that the gateway does not read": ({"rules": {"desk.yaml": "x"}}, "desk.yaml"),
    "a Secret without secrets": ({"secret": {"create": True}}, "secret.data"),
}


def of_operator(manifest):
    return manifest["apiVersion"].startswith("monitoring.coreos.com/")


def faults_of(manifest):
    """Why the API would refuse the manifest."""
    faults = []
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(manifest, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            faults.append(f"Kubernetes {version}: {'.'.join(str(part) for part in error.path)}: {error.message}")
    return faults


def install(values):
    """Installs the chart with Helm: its release and what it has created."""
    with stub_cluster.Cluster() as cluster, tempfile.NamedTemporaryFile("w", suffix=".json") as kubeconfig:
        kubeconfig.write(cluster.kubeconfig)
        kubeconfig.flush()
        configuration = helm_sdkpy.Configuration(namespace="desk", kubeconfig=kubeconfig.name)
        release = asyncio.run(helm_sdkpy.Install(configuration).run("desk", str(CHART), values=values, wait=False, timeout=30))
        return release, cluster.created()


def lint():
    with stub_cluster.Cluster() as cluster, tempfile.NamedTemporaryFile("w", suffix=".json") as kubeconfig:
        kubeconfig.write(cluster.kubeconfig)
        kubeconfig.flush()
        configuration = helm_sdkpy.Configuration(namespace="desk", kubeconfig=kubeconfig.name)
        result = asyncio.run(helm_sdkpy.Lint(configuration).run(str(CHART)))
    return [f"helm lint: {message}" for message in result["Messages"] or [] if message["Severity"] >= 2]


def one(objects, kind, name=None):
    found = [item for item in objects if item["kind"] == kind and name in (None, item["metadata"]["name"])]
    if len(found) != 1:
        raise AssertionError(f"{len(found)} objects {kind} {name or ''}")
    return found[0]


def chart_faults(rendered):
    """What the chart promises beyond valid objects; `rendered` are its objects, by the name of the values."""
    faults = []

    def expect(what, holds):
        if not holds:
            faults.append(f"chart: {what}")

    defaults, everything, fixed = rendered["defaults"], rendered["everything"], rendered["fixed size"]
    pod = one(defaults, "Deployment")["spec"]["template"]
    config = one(defaults, "ConfigMap", "desk-deskgate")["data"]["deskgate.toml"]
    expect("the default configuration is conf/kubernetes.toml", config == (DEPLOY.parent / "conf" / "kubernetes.toml").read_text())
    shipped = {path.name: path.read_text() for path in (DEPLOY.parent / "lua-free-rules").glob("*.toml")}
    expect("the default rules are those of lua-free-rules", one(defaults, "ConfigMap", "desk-deskgate-rules")["data"] == shipped)
    other = one(everything, "Deployment")["spec"]["template"]
    for name in ("checksum/config", "checksum/rules"):
        mine, theirs = pod["metadata"]["annotations"][name], other["metadata"]["annotations"][name]
        expect(f"{name} changes with its content", mine != theirs and len(mine) == 64)
    expect("the autoscaler sets the number of pods", "replicas" not in one(defaults, "Deployment")["spec"])
    expect("a fixed size has no autoscaler", not any(item["kind"] == "HorizontalPodAutoscaler" for item in fixed))
    expect("a fixed size has its pods", one(fixed, "Deployment")["spec"]["replicas"] == 2)
    expect("the digest is the image", other["spec"]["containers"][0]["image"].endswith("@sha256:" + "0" * 64))
    groups = one(everything, "PrometheusRule")["spec"]["groups"]
    files = [yaml.safe_load((DEPLOY / "prometheus" / name).read_text())["groups"] for name in ("recording.yaml", "alerts.yaml")]
    expect("all rules of deploy/prometheus are in the PrometheusRule", [group["name"] for group in groups] == [group["name"] for group in sum(files, [])])
    runbooks = [rule["annotations"]["runbook_url"] for group in groups for rule in group["rules"] if "alert" in rule]
    expect("alerts name the runbook of the values", runbooks and all(url.startswith("https://wiki.example.com/runbook#deskgate") for url in runbooks))
    dashboard = json.loads(one(everything, "ConfigMap", "desk-deskgate-dashboard")["data"]["deskgate.json"])
    expect("the dashboard is deploy/grafana/deskgate.json", dashboard == json.loads((DEPLOY / "grafana" / "deskgate.json").read_text()))
    return faults


def refusals():
    faults = []
    for what, (values, word) in REFUSED.items():
        try:
            install(values)
            faults.append(f"chart: {what} is not refused")
        except helm_sdkpy.HelmError as error:
            if word not in str(error):
                faults.append(f"chart: {what} is refused for another reason: {error}")
    return faults


def main():
    faults, checked, operator = lint(), 0, []
    manifests = {path.name: list(yaml.safe_load_all(path.read_text())) for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))}
    rendered = {name: install(values)[1] for name, values in VALUES.items()}
    for source, objects in [*manifests.items(), *((f"chart with {name}", objects) for name, objects in rendered.items())]:
        for manifest in objects:
            checked += 1
            if of_operator(manifest):
                operator.append(manifest)
                continue
            faults += [f"{source}: {manifest['kind']}: {fault}" for fault in faults_of(manifest)]
    faults += chart_faults(rendered) + refusals()
    # The schemas refuse what is wrong.
    broken = copy.deepcopy(one(manifests["deployment.yaml"], "Deployment"))
    broken["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    if len(faults_of(broken)) != len(VERSIONS):
        faults.append("a misspelled probe passes")
    pathlib.Path(sys.argv[1]).write_text(json.dumps(operator))
    print("\n".join(faults) if faults else f"{checked} objects are valid in Kubernetes {' and '.join(VERSIONS)}; Helm installs the chart")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
