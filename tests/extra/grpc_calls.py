#!/usr/bin/env python3
"""Calls a gRPC service through a gateway, with the client and server of grpcio.

    python grpc_calls.py PROGRAM

Starts PROGRAM (`deskgate`) on free ports with a temporary directory, TLS on its listener and HTTP/2 to the service. Exit
code 1 if a unary or streaming call, its metadata or its status is not what a direct call gives.
"""

import concurrent.futures
import json
import pathlib
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import grpc

CONFIG = """
[server]
listen = ["127.0.0.1:0"]
admin_listen = "127.0.0.1:0"
public_url = "https://127.0.0.1:0"
development = true
data_dir = "{folder}/data"
tls = {{ cert_file = "{folder}/certificate.pem", key_file = "{folder}/key.pem" }}
[clients]
h5 = "https://127.0.0.1:0/h5/"
itagent = "https://127.0.0.1:0/itagent/"
itadmin = "https://127.0.0.1:0/itadmin/"
[platform]
kind = "simulated"
simulated_listen = "127.0.0.1:0"
[limits]
body_grace = "1s"
[rules]
dir = "{folder}/rules"
[upstreams.tickets]
addresses = ["127.0.0.1:{port}"]
protocol = "http2"
[log]
level = "warn"
"""

RULES = """
[[rule]]
name = "tickets"
path = "/desk.Tickets/{method}"
methods = ["POST"]
upstream = "tickets"
signed_in = true
"""

SECONDS = 20


class Tickets(grpc.GenericRpcHandler):
    """A service of all four kinds of calls, on bytes instead of messages."""

    def __init__(self):
        self.called, self.cancelled = threading.Event(), threading.Event()

    def service(self, details):
        self.metadata = dict(details.invocation_metadata)
        handlers = {
            "Unary": grpc.unary_unary_rpc_method_handler(self.unary),
            "Download": grpc.unary_stream_rpc_method_handler(self.download),
            "Upload": grpc.stream_unary_rpc_method_handler(self.upload),
            "Talk": grpc.stream_stream_rpc_method_handler(self.talk),
            "Fail": grpc.unary_unary_rpc_method_handler(self.fail),
            "Never": grpc.unary_unary_rpc_method_handler(self.never),
        }
        return handlers.get(details.method.rsplit("/", 1)[-1])

    def unary(self, request, context):
        context.set_trailing_metadata([("answered-by", "tickets")])
        return request[::-1]

    def download(self, request, _):
        return (request + bytes([number % 256]) * 10_000 for number in range(100))

    def upload(self, pieces, _):
        return str(sum(len(piece) for piece in pieces)).encode()

    def talk(self, pieces, _):
        return (piece.upper() for piece in pieces)

    def fail(self, _, context):
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "the ticket is closed")

    def never(self, _, context):
        context.add_callback(self.cancelled.set)
        self.called.set()
        self.cancelled.wait(SECONDS)
        return b""


class Calls:
    """The calls of one client."""

    def __init__(self, channel, token):
        self.channel, self.metadata = channel, [("authorization", f"Bearer {token}")] if token else []

    def options(self):
        return {"metadata": self.metadata, "timeout": SECONDS}

    def unary(self, method, request, service="desk.Tickets"):
        return self.channel.unary_unary(f"/{service}/{method}").with_call(request, **self.options())

    def check(self, service):
        answer, call = self.unary("Unary", b"abc")
        expect("a unary call", answer, b"cba")
        expect("trailing metadata", dict(call.trailing_metadata()).get("answered-by"), "tickets")
        expect("the employee", service.metadata.get("x-deskgate-employee-id"), "a2001")
        expect("no token for the service", service.metadata.get("authorization"), None)
        large = b"x" * 3_000_000
        expect("a large unary call", self.unary("Unary", large)[0], large[::-1])
        pieces = list(self.channel.unary_stream("/desk.Tickets/Download")(b"p", **self.options()))
        expect("a download", (len(pieces), len(pieces[7])), (100, 10_001))
        upload = self.channel.stream_unary("/desk.Tickets/Upload")
        expect("an upload", upload((b"x" * 50_000 for _ in range(100)), **self.options()), b"5000000")
        self.check_conversation()
        expect("a failed call", self.failure("Fail"), (grpc.StatusCode.FAILED_PRECONDITION, "the ticket is closed"))
        expect("an unknown method", self.failure("Missing")[0], grpc.StatusCode.UNIMPLEMENTED)
        never = self.channel.unary_unary("/desk.Tickets/Never").future(b"", **self.options())
        expect("a call in progress", service.called.wait(SECONDS), True)
        never.cancel()
        expect("a cancelled call", service.cancelled.wait(SECONDS), True)

    def check_conversation(self):
        """Both directions at once, with a pause of the client that is longer than limits.body_grace."""
        answered = threading.Semaphore(0)

        def pieces():
            for piece in (b"one", b"two"):
                yield piece
                answered.acquire(timeout=SECONDS)
            time.sleep(1.5)
            yield b"three"

        answers = []
        for answer in self.channel.stream_stream("/desk.Tickets/Talk")(pieces(), **self.options()):
            answers.append(answer)
            answered.release()
        expect("a conversation", answers, [b"ONE", b"TWO", b"THREE"])

    def failure(self, method, service="desk.Tickets"):
        try:
            self.unary(method, b"", service)
        except grpc.RpcError as error:
            return error.code(), error.details()
        return None, None


def expect(what, found, expected):
    if found != expected:
        sys.exit(f"{what}: {str(found)[:200]!r} instead of {str(expected)[:200]!r}")


def write_files(folder, port):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                    "-keyout", folder / "key.pem", "-out", folder / "certificate.pem", "-subj", "/CN=gateway",
                    "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    (folder / "rules").mkdir()
    (folder / "rules" / "tickets.toml").write_text(RULES)
    (folder / "deskgate.toml").write_text(CONFIG.format(folder=folder, port=port))


def sign_in(address, certificate):
    body = json.dumps({"employee_id": "a2001"}).encode()
    request = urllib.request.Request(f"https://{address}/api/dev/login", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10, context=ssl.create_default_context(cafile=certificate)) as response:
        return json.load(response)["data"]["token"]


def main():
    program, service = sys.argv[1], Tickets()
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(8), handlers=[service])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        write_files(folder, port)
        command = [program, "serve", "--config", folder / "deskgate.toml"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as gateway:
            try:
                ready = next(line for line in gateway.stdout if line.startswith("ready "))
                address = dict(word.split("=", 1) for word in ready.split()[1:])["listen"]
                certificate = folder / "certificate.pem"
                credentials = grpc.ssl_channel_credentials(certificate.read_bytes())
                with grpc.secure_channel(address, credentials) as channel:
                    calls = Calls(channel, sign_in(address, certificate))
                    calls.check(service)
                    expect("a service without a rule", calls.failure("Unary", "desk.Other")[0], grpc.StatusCode.UNIMPLEMENTED)
                    expect("a call without a token", Calls(channel, None).failure("Unary")[0],
                           grpc.StatusCode.UNAUTHENTICATED)
            finally:
                gateway.terminate()
    server.stop(None)
    print("gRPC: unary, download, upload, conversation, failure, cancellation and refusals as expected")


if __name__ == "__main__":
    main()
