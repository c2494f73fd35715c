"""Sessions and tokens without sign-ins: sessions are written into the databases of a gateway that does not run, and their
tokens are signed with its key.

Every server that checks tokens gets the same ones, signed with ES256, which all of them can verify. OpenSSL's libcrypto
signs, because Python itself cannot.
"""

import base64
import ctypes
import ctypes.util
import hashlib
import hmac
import json
import pathlib
import subprocess
import sys
import time

from servers import REPOSITORY, Fault

FAULTS = REPOSITORY / "tests" / "faults"
sys.path.insert(0, str(FAULTS))

import fill  # noqa: E402

# The issuer of all tokens: `server.public_url` of every gateway of the benchmark.
ISSUER = "http://127.0.0.1"
LIFETIME_SECONDS = 8 * 3600
SESSIONS_PER_EMPLOYEE = 5


def base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def add_sessions(data, count):
    """Writes sessions into the databases of a gateway that has run once and does not run now."""
    command = [sys.executable, str(FAULTS / "fill.py"), str(data), "--sessions", str(count)]
    command += ["--employees", str(max(1, count // SESSIONS_PER_EMPLOYEE))]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


class Library:
    """The parts of libcrypto that sign."""

    def __init__(self):
        name = ctypes.util.find_library("crypto")
        if name is None:
            raise Fault("libcrypto is not installed")
        self.library = ctypes.CDLL(name)
        pointer = ctypes.c_void_p
        for function in ["BIO_new_mem_buf", "PEM_read_bio_PrivateKey", "EVP_PKEY_new_raw_private_key", "EVP_MD_CTX_new",
                         "EVP_sha256"]:
            getattr(self.library, function).restype = pointer

    def __getattr__(self, name):
        return getattr(self.library, name)


class Signer:
    """Signs with a key of a gateway, ES256 or EdDSA."""

    ED25519 = 1087

    def __init__(self, file):
        self.file, self.crypto = file, Library()
        self.algorithm = "ES256" if file.stem.startswith("es256") else "EdDSA"
        self.key = self._ec_key() if self.algorithm == "ES256" else self._ed25519_key()
        if not self.key:
            raise Fault(f"{file.name} cannot be read")
        self.context = ctypes.c_void_p(self.crypto.EVP_MD_CTX_new())
        self.digest = ctypes.c_void_p(self.crypto.EVP_sha256() if self.algorithm == "ES256" else None)

    def _ec_key(self):
        text = self.file.read_bytes()
        bio = ctypes.c_void_p(self.crypto.BIO_new_mem_buf(text, len(text)))
        return ctypes.c_void_p(self.crypto.PEM_read_bio_PrivateKey(bio, None, None, None))

    def _ed25519_key(self):
        lines = self.file.read_text().splitlines()
        pkcs8 = base64.b64decode("".join(line for line in lines if not line.startswith("-")))
        # PKCS#8 of the second version, which OpenSSL does not read: the seed follows the head of its octet string.
        seed = pkcs8.index(bytes.fromhex("04220420")) + 4
        return ctypes.c_void_p(self.crypto.EVP_PKEY_new_raw_private_key(self.ED25519, None, pkcs8[seed:seed + 32],
                                                                        ctypes.c_size_t(32)))

    def sign(self, data):
        signature, length = ctypes.create_string_buffer(80), ctypes.c_size_t(80)
        crypto = self.crypto
        crypto.EVP_MD_CTX_reset(self.context)
        crypto.EVP_DigestSignInit(self.context, None, self.digest, None, self.key)
        size = ctypes.c_size_t(len(data))
        if crypto.EVP_DigestSign(self.context, signature, ctypes.byref(length), data, size) != 1:
            raise Fault("libcrypto does not sign")
        signed = signature.raw[:length.value]
        return fixed_size(signed) if self.algorithm == "ES256" else signed

    def public_pem(self):
        command = ["openssl", "pkey", "-in", str(self.file), "-pubout"]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.decode()

    def jwks(self):
        """The public key of ES256 as a JWK set."""
        lines = self.public_pem().splitlines()[1:-1]
        point = base64.b64decode("".join(lines))[-64:]
        key = {"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": self.file.stem,
               "x": base64url(point[:32]).decode(), "y": base64url(point[32:]).decode()}
        return json.dumps({"keys": [key]})


def fixed_size(der):
    """An ECDSA signature as a JWT has it: two numbers of 32 bytes instead of DER."""
    numbers, at = b"", 2
    for _ in range(2):
        length = der[at + 1]
        numbers += der[at + 2:at + 2 + length].lstrip(b"\0").rjust(32, b"\0")
        at += 2 + length
    return numbers


class SharedSecret:
    """Signs with HS256, for nginx with Lua."""

    algorithm = "HS256"

    def __init__(self, secret):
        self.secret = secret

    def sign(self, data):
        return hmac.new(self.secret, data, hashlib.sha256).digest()


def signer_of(data):
    """The signer with the newest key of a data directory."""
    return Signer(fill.newest_key(pathlib.Path(data)))


def tokens(signer, key_id, numbers, sessions):
    """Tokens of sessions that `add_sessions` has written, `sessions` in all."""
    employees, now = max(1, sessions // SESSIONS_PER_EMPLOYEE), int(time.time())
    compact = {"separators": (",", ":")}
    header = base64url(json.dumps({"typ": "at+jwt", "alg": signer.algorithm, "kid": key_id}, **compact).encode())
    for number in numbers:
        owner = number % employees
        claims = {
            "iss": ISSUER, "aud": "deskgate", "sub": fill.employee_id(owner), "jti": fill.session_id(number),
            "iat": now - 1, "nbf": now - 1, "exp": now + LIFETIME_SECONDS, "corp_id": fill.CORP,
            "name": fill.name_of(owner), "roles": ["user"], "current_role": "user", "login_source": "qrcode",
            "stage": "full",
        }
        signed = header + b"." + base64url(json.dumps(claims, **compact).encode())
        yield (signed + b"." + base64url(signer.sign(signed))).decode()
