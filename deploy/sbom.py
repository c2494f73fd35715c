"""Writes a software bill of materials: a CycloneDX 1.6 document of every crate that the program is compiled from.

    sbom.py [--output FILE] [--target TRIPLE] [--features LIST]

It describes the program as it is packaged: without the feature `demo`, and without what only tests use. Everything comes from
Cargo.lock and the manifests of the crates. DESKGATE_COMMIT and SOURCE_DATE_EPOCH set commit and time for builds outside of a
repository, as for the program itself.
"""

import argparse
import datetime
import json
import os
import pathlib
import subprocess
import tomllib
import uuid

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent


def run(*command):
    return subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout


def commit():
    """The commit that is described, or None if it cannot be known."""
    named = os.environ.get("DESKGATE_COMMIT", "").strip()
    if named:
        return named
    try:
        root = run("git", "rev-parse", "--show-toplevel").strip()
        return run("git", "rev-parse", "HEAD").strip() if pathlib.Path(root).resolve() == REPOSITORY else None
    except (OSError, subprocess.CalledProcessError):
        return None


def timestamp(seconds=os.environ.get("SOURCE_DATE_EPOCH")):
    zone = datetime.timezone.utc
    time = datetime.datetime.fromtimestamp(int(seconds), zone) if seconds else datetime.datetime.now(zone)
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def host():
    return next(line.split()[1] for line in run("rustc", "-vV").splitlines() if line.startswith("host: "))


def metadata(target, features):
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", target, "--no-default-features"]
    return json.loads(run(*command, *(["--features", features] if features else [])))


def compiled(target, features):
    """Names and versions of the crates that are compiled. The metadata of cargo also has optional ones that no feature enables."""
    command = ["cargo", "tree", "--locked", "--target", target, "--no-default-features", "--edges", "normal,build", "--prefix", "none"]
    lines = run(*command, *(["--features", features] if features else [])).splitlines()
    return {tuple(line.split()[:2]) for line in lines if line}


def licenses(package):
    """The licence as an SPDX expression; `/` is an older spelling of OR in manifests."""
    expression = (package["license"] or "").replace("/", " OR ")
    return [{"expression": " ".join(expression.split())}] if expression else []


def component(package, checksums):
    name, version = package["name"], package["version"]
    described = {
        "type": "library",
        "bom-ref": reference(package),
        "name": name,
        "version": version,
        "purl": reference(package),
        "licenses": licenses(package),
        "hashes": [{"alg": "SHA-256", "content": checksums[name, version]}],
    }
    if package["description"]:
        described["description"] = " ".join(package["description"].split())
    if package["repository"]:
        described["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return described


def reference(package):
    """The package URL, which also is the reference within the document."""
    return f"pkg:cargo/{package['name']}@{package['version'].replace('+', '%2B')}"


def document(target, features):
    graph, kept = metadata(target, features), compiled(target, features)
    packages = {package["id"]: package for package in graph["packages"]}
    lock = tomllib.loads((REPOSITORY / "Cargo.lock").read_text())
    checksums = {(entry["name"], entry["version"]): entry.get("checksum") for entry in lock["package"]}
    root = packages[graph["resolve"]["root"]]

    def is_compiled(package):
        # A stub of this repository is part of the program, not a crate of that name.
        is_own_stub = package["source"] is None and package["id"] != root["id"]
        return (package["name"], "v" + package["version"]) in kept and not is_own_stub

    def is_built(dependency):
        return any(kind["kind"] != "dev" for kind in dependency["dep_kinds"]) and is_compiled(packages[dependency["pkg"]])

    nodes = [node for node in graph["resolve"]["nodes"] if is_compiled(packages[node["id"]])]
    libraries = sorted((packages[node["id"]] for node in nodes if node["id"] != root["id"]), key=reference)
    dependencies = sorted(({
        "ref": reference(packages[node["id"]]),
        "dependsOn": sorted({reference(packages[edge["pkg"]]) for edge in node["deps"] if is_built(edge)}),
    } for node in nodes), key=lambda entry: entry["ref"])
    revision = commit()
    program = {
        "type": "application",
        "bom-ref": reference(root),
        "name": root["name"],
        "version": root["version"],
        "description": root["description"],
        "licenses": licenses(root),
        "purl": reference(root),
        "properties": [{"name": "deskgate:commit", "value": revision or "unknown"},
                       {"name": "deskgate:target", "value": target},
                       {"name": "deskgate:features", "value": features}],
    }
    identity = json.dumps([revision, target, features, sorted(map(str, checksums.items()))])
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        # The same for the same build, so that the document can be reproduced.
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, identity)}",
        "version": 1,
        "metadata": {
            "timestamp": timestamp(),
            "tools": {"components": [{"type": "application", "name": "deploy/sbom.py", "version": root["version"]}]},
            "component": program,
        },
        "components": [component(package, checksums) for package in libraries],
        "dependencies": dependencies,
    }


def main():
    parser = argparse.ArgumentParser(description="Writes a software bill of materials (CycloneDX 1.6).")
    parser.add_argument("--output", type=pathlib.Path, help="default: standard output")
    parser.add_argument("--target", default=None, help="platform; default: that of this machine")
    parser.add_argument("--features", default="", help="cargo features of the program")
    args = parser.parse_args()
    text = json.dumps(document(args.target or host(), args.features), indent=2, ensure_ascii=False) + "\n"
    if args.output is None:
        print(text, end="")
    else:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(text)


if __name__ == "__main__":
    main()
