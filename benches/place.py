"""Where the benchmark takes place: folders, programs, certificate, keys, sessions and tokens."""

import os
import secrets
import subprocess
import sys
import tempfile

import contestants
import tokens
from servers import REPOSITORY, Fault, Server, free_port, target_folder

sys.path.append(str(REPOSITORY / "deploy"))

import release  # noqa: E402

# Sessions of every gateway, and how many of their tokens the workload with many tokens uses.
SESSIONS = 10_000


def build_deskgate():
    """Builds deskgate as `make release` does. Returns its path."""
    try:
        return str(release.build_for_release(target_folder()))
    except subprocess.CalledProcessError as error:
        raise Fault("deskgate cannot be built") from error


def build_bare_proxy():
    """Builds a bare Pingora proxy with the flags of deskgate. No profile was recorded for it. Returns its path."""
    try:
        return str(release.build(target_folder(), "--example", "bare_proxy", []))
    except subprocess.CalledProcessError as error:
        raise Fault("bare_proxy cannot be built") from error


class Place:
    """A temporary folder with all that the contestants need. `threads` are deskgate's."""

    def __init__(self, folder, program, bare_proxy=None, envoy=None, earlier=None, threads=1):
        self.folder, self.program, self.bare_proxy, self.envoy = folder, program, bare_proxy, envoy
        self.earlier, self.threads = earlier, threads
        self.certificate, self.certificate_key = folder / "tls.crt", folder / "tls.key"
        self.data, self.tokens = {}, {}

    def new_folder(self, name):
        """A folder of its own for each start of a server."""
        folder = self.folder / "servers"
        folder.mkdir(exist_ok=True)
        return type(self.folder)(tempfile.mkdtemp(prefix=f"{name}-", dir=folder))

    def make_certificate(self):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2", "-out",
                        self.certificate, "-keyout", self.certificate_key], check=True, stderr=subprocess.DEVNULL)

    def make_sessions(self, algorithm, count=SESSIONS):
        """A data directory with sessions whose tokens are signed with the algorithm. Returns it and the signer."""
        folder = self.new_folder(f"sessions-{algorithm}")
        contestants.write_rules(folder / "rules")
        # A first run makes the tables and the key.
        port, tls_port = free_port(), free_port()
        command = contestants.deskgate_command(self, folder, folder / "data", "127.0.0.1:9", port, tls_port)
        first = Server("deskgate", [*command, "--set", f"token.algorithm={algorithm}"], port, folder / "log", ready="ready listen=")
        try:
            first.wait_until_listening()
        finally:
            first.stop()
        tokens.add_sessions(folder / "data", count)
        return folder / "data", tokens.signer_of(folder / "data")

    def prepare(self):
        self.make_certificate()
        for algorithm in ("ES256", "EdDSA"):
            self.data[algorithm], signer = self.make_sessions(algorithm)
            self.tokens[algorithm] = list(tokens.tokens(signer, signer.file.stem, range(SESSIONS), SESSIONS))
            if algorithm == "ES256":
                (self.folder / "public.pem").write_text(signer.public_pem())
                (self.folder / "jwks.json").write_text(signer.jwks())
        secret = secrets.token_hex(32)
        (self.folder / "shared").write_text(secret)
        self.tokens["HS256"] = list(tokens.tokens(tokens.SharedSecret(secret.encode()), "shared", range(SESSIONS), SESSIONS))
        # What the benchmark writes is nobody else's business, but nginx as root must read it.
        os.chmod(self.folder, 0o711)
        return self

    @property
    def public_key(self):
        return self.folder / "public.pem"

    @property
    def jwks(self):
        return self.folder / "jwks.json"

    @property
    def shared_secret(self):
        return self.folder / "shared"

    def start(self, servers, contestant, upstream):
        """Starts a contestant in front of an upstream."""
        server = servers.add(contestant.start(self, upstream))
        server.contestant = contestant
        return server
