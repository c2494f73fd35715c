"""What is compared: how each proxy is configured and started.

All have one worker thread, no access log, one upstream with kept connections, HTTP/1.1 on a plain port, and HTTP/1.1 and
HTTP/2 on a TLS port. Those that check tokens remove a client's identity headers and set their own.
"""

import json
import os
import re
import shutil
import signal
import subprocess
from dataclasses import dataclass
from typing import Callable

import envoy
from servers import LOAD_CORES, PROXY_CORES, REPOSITORY, Server, free_port, program
from tokens import ISSUER

LUA_MODULES = ["/usr/lib/nginx/modules", "/usr/lib64/nginx/modules", "/usr/share/nginx/modules"]
SMALL, LARGE = 1024, 100 * 1024
# More than any request head that reaches the upstream.
HEAD = 8 * 1024

# Paths of the upstream, beside the socket's: 1 KiB, 100 KB, and 1 KiB once the request body was read.
SMALL_PATH, LARGE_PATH, UPLOAD_PATH = "/api/bench/small", "/api/bench/large", "/api/bench/upload"
SOCKET_PATH = "/ws/bench"

RULES = """
[[rule]]
name = "bench"
path = "/api/bench/{*rest}"
upstream = "helpdesk"
access = "conversations:update"
roles = ["user", "agent"]

[[rule]]
name = "bench socket"
path = "/ws/bench"
methods = ["GET"]
upstream = "helpdesk"
signed_in = true
"""


@dataclass(frozen=True)
class Contestant:
    """One proxy. `tokens` is the algorithm of the tokens that it verifies, or None if it reads none."""

    key: str
    title: str
    tokens: str | None
    start: Callable

    @property
    def is_deskgate(self):
        return self.key.startswith("deskgate")


def lua_module():
    """The folder of nginx's Lua module, or None."""
    return next((folder for folder in LUA_MODULES if os.path.exists(f"{folder}/ngx_http_lua_module.so")), None)


def nginx_server(place, name, http, locations, cores=PROXY_CORES, lua=False):
    folder, port, tls_port = place.new_folder(name), free_port(), free_port()
    user = "user root;" if os.geteuid() == 0 else ""
    modules = ["ndk_http_module.so", "ngx_http_lua_module.so"] if lua else []
    load = " ".join(f"load_module {lua_module()}/{module};" for module in modules)
    paths = " ".join(f"{kind}_temp_path {folder}/{kind};" for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"])
    (folder / "nginx.conf").write_text(f"""
        {user} {load} worker_processes 1; daemon off; pid {folder}/pid; error_log {folder}/error.log;
        worker_rlimit_nofile 32768;
        events {{ worker_connections 16384; }}
        http {{
            access_log off; {paths} client_max_body_size 0; client_body_buffer_size {2 * LARGE};
            keepalive_timeout 600s; keepalive_requests 100000000; http2_max_concurrent_streams 128;
            {http}
            server {{
                listen 127.0.0.1:{port} backlog=4096; listen 127.0.0.1:{tls_port} ssl http2 backlog=4096;
                ssl_certificate {place.certificate}; ssl_certificate_key {place.certificate_key};
                default_type text/plain; {locations}
            }}
        }}""")
    command = [program("nginx"), "-p", folder, "-c", folder / "nginx.conf", "-e", folder / "error.log"]
    return Server(name, command, port, folder / "error.log", cores, tls_port)


def upstream_server(place):
    """The upstream. It is not measured and must not be the bottleneck."""
    folder = place.new_folder("files")
    (folder / "api" / "bench").mkdir(parents=True)
    (folder / LARGE_PATH.lstrip("/")).write_text("x" * LARGE)
    answer = "x" * SMALL
    # Without Lua nginx answers before it has read the body.
    upload = f"""location {UPLOAD_PATH} {{
        content_by_lua_block {{ ngx.req.read_body() ngx.header["Content-Length"] = {SMALL} ngx.print("{answer}") }}
    }}"""
    lua = lua_module() is not None
    locations = f'location / {{ return 200 "{answer}"; }} location {LARGE_PATH} {{ root {folder}; }} {upload if lua else ""}'
    # A head of more than a kilobyte, as those with an assertion, would take nginx two reads.
    http = f"sendfile on; tcp_nopush off; client_header_buffer_size {HEAD};"
    return nginx_server(place, "upstream", http, locations, LOAD_CORES, lua)


def nginx_pool(upstream):
    return f"""upstream upstream {{ server {upstream}; keepalive 1024; keepalive_requests 100000000; keepalive_timeout 600s; }}
        proxy_http_version 1.1; proxy_request_buffering off; proxy_buffers 16 16k; proxy_busy_buffers_size 64k;"""


def nginx_locations(check="", headers=""):
    return f"""
        {check}
        location / {{ proxy_pass http://upstream; proxy_set_header Connection ""; {headers} }}
        location /ws/ {{
            proxy_pass http://upstream; proxy_read_timeout 600s;
            proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection "upgrade"; {headers}
        }}"""


def start_nginx(place, upstream):
    return nginx_server(place, "nginx", nginx_pool(upstream), nginx_locations())


def start_lua(place, upstream, algorithm="ES256"):
    key = place.public_key if algorithm == "ES256" else place.shared_secret
    http = f"""{nginx_pool(upstream)}
        lua_package_path "{REPOSITORY}/benches/?.lua;/usr/share/lua/5.1/?.lua;;"; lua_shared_dict revoked 4m;
        init_by_lua_block {{ check = require("token_check"); check.init("{algorithm}", "{key}") }}"""
    variables = ["employee", "session", "corp", "name", "role", "roles", "source", "scope"]
    names = ["Employee-Id", "Session-Id", "Corp-Id", "Name", "Current-Role", "Roles", "Login-Source", "Scope"]
    headers = " ".join(f"proxy_set_header X-Deskgate-{name} ${variable};" for name, variable in zip(names, variables))
    headers += """ proxy_set_header X-Deskgate-Department ""; proxy_set_header X-Deskgate-Assertion "";
        proxy_set_header X-Forwarded-For $remote_addr; proxy_set_header X-Forwarded-Proto $scheme;
        proxy_set_header X-Forwarded-Host $http_host; proxy_set_header X-Request-Id $request_id;"""
    check = " ".join(f'set ${variable} "";' for variable in variables) + " access_by_lua_block { check.access() }"
    return nginx_server(place, f"nginx-lua-{algorithm}", http, nginx_locations(check, headers), lua=True)


def start_haproxy(place, upstream):
    folder, port, tls_port = place.new_folder("haproxy"), free_port(), free_port()
    (folder / "both.pem").write_text(place.certificate.read_text() + place.certificate_key.read_text())
    claims = {"Employee-Id": "sub", "Session-Id": "jti", "Corp-Id": "corp_id", "Name": "name",
              "Current-Role": "current_role", "Login-Source": "login_source"}
    # The payload is decoded once, and not for every claim.
    headers = "\n".join(f"    http-request set-header X-Deskgate-{name} %[var(txn.claims),json_query('$.{claim}')]"
                        for name, claim in claims.items())
    (folder / "haproxy.cfg").write_text(f"""
global
    nbthread 1
    maxconn 8000
defaults
    mode http
    timeout connect 5s
    timeout client 600s
    timeout server 600s
    timeout tunnel 600s
    http-reuse always
    no log
frontend gate
    bind 127.0.0.1:{port} backlog 4096
    bind 127.0.0.1:{tls_port} ssl crt {folder}/both.pem alpn h2,http/1.1 backlog 4096
    http-request set-var(txn.token) http_auth_bearer
    http-request set-var(txn.algorithm) var(txn.token),jwt_header_query('$.alg')
    http-request deny deny_status 401 unless {{ var(txn.algorithm) -m str ES256 }}
    http-request deny deny_status 401 unless {{ var(txn.token),jwt_verify(txn.algorithm,"{place.public_key}") 1 }}
    http-request set-var(txn.claims) var(txn.token),field(2,.),ub64dec
    http-request set-var(txn.now) date()
    http-request set-var(txn.left) var(txn.claims),json_query('$.exp','int'),sub(txn.now)
    http-request deny deny_status 401 unless {{ var(txn.left) -m int gt 0 }}
    http-request deny deny_status 403 unless {{ var(txn.claims),json_query('$.current_role') -m str user }}
    http-request del-header x-deskgate- -m beg
{headers}
    http-request set-header X-Forwarded-For %[src]
    http-request set-header X-Request-Id %[uuid()]
    default_backend desk
backend desk
    server desk {upstream} maxconn 8000 pool-purge-delay 600s
""")
    command = [program("haproxy"), "-db", "-f", folder / "haproxy.cfg"]
    return Server("haproxy", command, port, folder / "log", tls_port=tls_port)


def start_envoy(place, upstream):
    folder, port, tls_port = place.new_folder("envoy"), free_port(), free_port()
    config = envoy.configuration(upstream, port, tls_port, place.certificate, place.certificate_key, place.jwks, ISSUER)
    (folder / "envoy.json").write_text(json.dumps(config, indent=1))
    command = [place.envoy, "--concurrency", "1", "--log-level", "error", "--disable-hot-restart", "-c", folder / "envoy.json"]
    return Server("envoy", command, port, folder / "log", tls_port=tls_port)


def start_bare(place, upstream):
    """Pingora's proxy with nothing added, on a plain port only."""
    folder, port = place.new_folder("bare-pingora"), free_port()
    command = [place.bare_proxy, f"127.0.0.1:{port}", upstream]
    # On SIGTERM, Pingora would wait minutes for open connections.
    return Server("bare Pingora", command, port, folder / "log", stop=signal.SIGINT)


def write_rules(folder, rules=RULES, only_these=False):
    """The rules of the repository and those of the benchmark, without limits that the benchmark would reach: it creates all
    QR codes and opens all sign-in pages from one address."""
    folder.mkdir()
    for file in (REPOSITORY / "lua-free-rules").glob("matrix.toml" if only_these else "*.toml"):
        text = re.sub(r'(path = "/api/auth/(?:qrcode|scan/status)"\nrate = )\[(?:.|\n)*?\](?=\n\n)', r"\1[]", file.read_text())
        (folder / file.name).write_text(text)
    (folder / "bench.toml").write_text(rules)


def deskgate_command(place, folder, data, upstream, port, tls_port):
    """The command of a gateway in its production mode, on a data directory that exists, without access log and without the
    limit of invalid tokens."""
    (folder / "secret").write_text("not a secret")
    (folder / "secret").chmod(0o600)
    (folder / "deskgate.toml").write_text(f"""
        [server]
        listen = ["127.0.0.1:{port}"]
        admin_listen = "127.0.0.1:0"
        public_url = "{ISSUER}"
        hosts = ["127.0.0.1"]
        data_dir = "{data}"
        threads = {place.threads}
        [[server.listeners]]
        address = "127.0.0.1:{tls_port}"
        tls = true
        [[server.certificates]]
        cert_file = "{place.certificate}"
        key_file = "{place.certificate_key}"
        [limits]
        invalid_tokens = 0
        idle = "10m"
        [platform]
        corp_id = "wwdemo"
        secret_file = "{folder}/secret"
        api_url = "https://127.0.0.1:9/"
        recheck = "0s"
        [rules]
        dir = "{folder}/rules"
        [upstreams.helpdesk]
        addresses = ["{upstream}"]
        path_case = "sensitive"
        [log]
        level = "error"
        requests = "refused"
        """)
    return [place.program, "serve", "--config", folder / "deskgate.toml"]


def start_deskgate(place, upstream, algorithm="ES256", settings=(), data=None, rules=RULES, only_these=False, program_file=None):
    """deskgate with the sessions of the benchmark: on a copy of their data directory, or on `data` itself. `program_file` is another
    program than the one that is measured."""
    folder, port, tls_port = place.new_folder("deskgate"), free_port(), free_port()
    write_rules(folder / "rules", rules, only_these)
    if data is None:
        data = folder / "data"
        shutil.copytree(place.data[algorithm], data, ignore=shutil.ignore_patterns("*.sock"))
    command = deskgate_command(place, folder, data, upstream, port, tls_port)
    if program_file:
        command[0] = program_file
    for setting in (f"token.algorithm={algorithm}", *settings):
        command += ["--set", setting]
    return Server("deskgate", command, port, folder / "log", tls_port=tls_port, ready="ready listen=")


def start_pingora_lane(place, upstream):
    return start_deskgate(place, upstream, settings=["server.fast_lane=false"])


def start_earlier(place, upstream):
    """An earlier program, on Pingora's lane if it has the choice."""
    sample = place.folder / "lane.toml"
    sample.write_text("[server]\nfast_lane = false\n")
    tried = subprocess.run([place.earlier, "check", "--config", sample], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    settings = [] if b"unknown field" in tried.stdout else ["server.fast_lane=false"]
    return start_deskgate(place, upstream, settings=settings, program_file=place.earlier)


# In the order of their turns: those that targets compare follow each other, because the speed of the machine changes.
CONTESTANTS = [
    Contestant("nginx", "nginx, plain proxy", None, start_nginx),
    Contestant("deskgate-eddsa", "deskgate, EdDSA", "EdDSA", lambda place, upstream: start_deskgate(place, upstream, "EdDSA")),
    Contestant("deskgate", "deskgate", "ES256", start_deskgate),
    Contestant("lua", "nginx with Lua and cache, ES256", "ES256", start_lua),
    Contestant("lua-hs256", "nginx with Lua and cache, HS256", "HS256", lambda place, upstream: start_lua(place, upstream, "HS256")),
    Contestant("deskgate-pingora", "deskgate, Pingora's lane", "ES256", start_pingora_lane),
    Contestant("deskgate-earlier", "deskgate, an earlier program", "ES256", start_earlier),
    Contestant("bare", "bare Pingora", None, start_bare),
    Contestant("haproxy", "HAProxy, jwt_verify", "ES256", start_haproxy),
    Contestant("envoy", "Envoy, jwt_authn with cache", "ES256", start_envoy),
]
