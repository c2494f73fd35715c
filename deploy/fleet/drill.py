"""Faults in a running fleet, under load: a Redis primary is killed, then a gateway, and another gateway is paused, while employees
sign in, work and log out on all gateways.

Whatever was answered must hold. An issued token is valid everywhere until its logout is answered, and nowhere 100 ms later; a
QR code issued by one gateway is scanned at the second and confirmed at the third; a shared rate admits no more than its limit.
A fault may delay a request or have it refused with 503; it must not lose a session or admit anyone. There are two exceptions, which are
counted and printed. `store.outage_grace` allows that a gateway that cannot reach a killed primary does not know of a logout in its last
moment until the replica has taken over. And on a machine that is short of processor time, a gateway may learn of a logout later.
"""

import base64
import http.client
import json
import os
import random
import re
import signal
import socket
import threading
import time
import urllib.parse

EMPLOYEES = ["u1001", "a2001", "m5001"]
WORKERS = 6

# The rule "write a message": 120 a minute for each employee, over all gateways.
RATED_PATH, LIMIT, WINDOW = "/api/conversations/7/messages", 120, 60.0
RATED_EMPLOYEE = "s3001"

# For how many seconds after an answered logout a gateway may still admit the token, and for how many it may if processes wait for a
# core, which must remain the case of at most one logout in ten.
REVOCATION, LATEST_REVOCATION = 0.1, 2.0
MOST_LATE = 0.1

# How long a step may take while a fault lasts: a failover of the cluster is detected after two seconds.
PATIENCE = 20.0


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def data(self):
        return json.loads(self.body)["data"]


class Client:
    """An HTTP client with cookies, which reaches one port and names the fleet's public host, as the balancer does."""

    def __init__(self, fleet, port, cookies=None):
        self.host = urllib.parse.urlsplit(fleet.gateways.public_url).netloc
        self.port, self.cookies = port, {} if cookies is None else cookies

    def send(self, method, path, token=None, body=None, form=None, timeout=10):
        """Sends a request; None if there was no answer."""
        headers = {"Host": self.host, "Origin": f"http://{self.host}"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if self.cookies:
            headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        content = None
        if body is not None:
            content, headers["Content-Type"] = json.dumps(body), "application/json"
        if form is not None:
            content, headers["Content-Type"] = urllib.parse.urlencode(form), "application/x-www-form-urlencoded"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, content, headers)
            response = connection.getresponse()
            for cookie in response.headers.get_all("Set-Cookie") or []:
                name, _, value = cookie.split(";")[0].partition("=")
                self.cookies[name] = value
            return Answer(response.status, response.headers, response.read())
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def until(self, status, method, path, repeated=None, **more):
        """Sends a request again while a fault refuses it, until it is answered with this status. What was refused may have been done:
        `repeated` is the status of doing it again."""
        end, expected = time.monotonic() + PATIENCE, {status}
        while True:
            answer = self.send(method, path, **more)
            if answer is not None and answer.status in expected:
                return answer
            if not is_refused(answer) or time.monotonic() > end:
                said = "no answer" if answer is None else f"{answer.status} {answer.body[:200]!r}"
                raise DrillFault(f"{method} {path.split('?')[0]}: expected {status}, got {said}")
            expected.add(repeated)
            time.sleep(0.1)


def is_refused(answer):
    """Whether a fault refused a request."""
    return answer is None or answer.status in (502, 503, 504)


class DrillFault(Exception):
    """A promise that was broken."""


# The tokens that a gateway admitted after REVOCATION, though not after LATEST_REVOCATION.
LATE = f"admitted later than {REVOCATION * 1000:.0f} ms after the logout"


class Record:
    """What was answered, by all clients."""

    def __init__(self):
        self.lock, self.faults, self.tokens, self.ended, self.closings = threading.Lock(), [], set(), {}, []
        self.counts = {"answered": 0, "refused by a fault": 0, "sign-ins": 0, "logouts": 0,
                       "admitted after the logout while Redis failed over": 0, LATE: 0}
        self.admitted, self.fails_over = [], False

    def count(self, what):
        with self.lock:
            self.counts[what] += 1

    def fault(self, text):
        with self.lock:
            self.faults.append(text)

    def signed_in(self, token):
        with self.lock:
            self.tokens.add(token)
            self.counts["sign-ins"] += 1

    def logging_out(self, token):
        """From now on the token may be refused or not, until the logout is answered."""
        with self.lock:
            self.tokens.discard(token)

    def logged_out(self, token):
        with self.lock:
            self.ended[token] = time.monotonic()
            self.counts["logouts"] += 1


def open_socket(port, host, token):
    """A WebSocket, or None if it was not opened."""
    try:
        stream = socket.create_connection(("127.0.0.1", port), timeout=10)
        key = base64.b64encode(os.urandom(16)).decode()
        stream.sendall((f"GET /ws/employee HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
                        f"Sec-WebSocket-Protocol: bearer.{token}\r\n\r\n").encode())
        answer = stream.makefile("rb")
        if b" 101 " not in answer.readline():
            stream.close()
            return None
        while answer.readline() not in (b"\r\n", b""):
            pass
        return stream, answer
    except OSError:
        return None


def close_code(answer):
    """The code of the close frame; None if the connection ended without one."""
    try:
        while True:
            first, length = answer.read(2)
            if length == 126:
                length = int.from_bytes(answer.read(2), "big")
            payload = answer.read(length)
            if first & 15 == 8:
                return int.from_bytes(payload[:2], "big")
    except (OSError, ValueError):
        return None


class Worker(threading.Thread):
    """Signs in, works with a WebSocket open, logs out, and begins again. Every other session is kept to the end."""

    def __init__(self, fleet, record, stop, number):
        super().__init__(daemon=True)
        self.fleet, self.record, self.stop, self.choice = fleet, record, stop, random.Random(number)

    def run(self):
        keeps = False
        while not self.stop.is_set():
            try:
                self.one_session(keeps)
            except Exception as error:  # a fault of the drill itself must not pass for a pass
                self.record.fault(f"a worker failed: {error!r}")
                return
            keeps = not keeps

    def anywhere(self):
        ports = self.fleet.gateways.ports + [self.fleet.balancer.port] * 3
        return Client(self.fleet, self.choice.choice(ports))

    def one_session(self, keeps):
        answer = self.anywhere().send("POST", "/api/dev/login", body={"employee_id": self.choice.choice(EMPLOYEES)})
        if not self.is_answered(answer, 200, "sign-in"):
            time.sleep(0.05)
            return
        token = answer.data["token"]
        self.record.signed_in(token)
        opened_at = self.choice.randrange(len(self.fleet.gateways.ports))
        opened = open_socket(self.fleet.gateways.ports[opened_at], self.anywhere().host, token)
        for _ in range(self.choice.randrange(4, 12)):
            self.is_answered(self.anywhere().send("GET", "/api/auth/me", token), 200, "a valid token")
        if keeps:
            if opened:
                opened[0].close()
            return
        self.log_out(token, opened)

    def log_out(self, token, opened):
        self.record.logging_out(token)
        # A logout that was cut off may have been done: then the next one is refused.
        while not self.stop.is_set():
            begun = time.monotonic()
            answer = self.anywhere().send("POST", "/api/auth/logout", token, body={})
            if self.is_answered(answer, (200, 401), "logout"):
                break
            time.sleep(0.05)
        else:
            return
        self.record.logged_out(token)
        if opened:
            opened[0].settimeout(10)
            code = close_code(opened[1])
            if code == 4401:
                self.record.closings.append(time.monotonic() - begun)
            # 1001 and 1013 are a gateway that leaves or has lost the store; None is one that was killed.
            elif code not in (None, 1001, 1013):
                self.record.fault(f"a WebSocket was closed with {code} after the logout")
            opened[0].close()
        self.expect_ended(token)

    def expect_ended(self, token):
        """Sends a token whose logout was answered."""
        time.sleep(REVOCATION)
        fails_over, client = self.record.fails_over, self.anywhere()
        if not is_admitted(client, token):
            return
        if fails_over:
            self.record.count("admitted after the logout while Redis failed over")
            return
        self.record.count(LATE)
        end = self.record.ended[token] + LATEST_REVOCATION
        while is_admitted(client, token) and not self.record.fails_over:
            if time.monotonic() > end:
                self.record.fault(f"a token was admitted {LATEST_REVOCATION:.0f} s after its logout")
                return

    def is_answered(self, answer, expected, what):
        expected = expected if isinstance(expected, tuple) else (expected,)
        if answer is not None and answer.status in expected:
            self.record.count("answered")
            return True
        if not is_refused(answer):
            self.record.fault(f"{what} was answered with {answer.status}: {answer.body[:200]!r}")
        self.record.count("refused by a fault")
        return False


def is_admitted(client, token):
    answer = client.send("GET", "/api/auth/me", token)
    return answer is not None and answer.status == 200


def keep_busy(fleet, record, stop, token):
    """Sends more than a shared rate admits, through the balancer, and notes what was admitted."""
    client = Client(fleet, fleet.balancer.port)
    while not stop.is_set():
        begun = time.monotonic()
        answer = client.send("POST", RATED_PATH, token, body={"text": "hello"})
        if answer is not None and answer.status == 200:
            record.admitted.append((begun, time.monotonic()))
        time.sleep(0.02)


def most_in_a_window(admitted):
    """The most requests that were certainly admitted within one window: sent and answered in it."""
    return max((sum(1 for sent, answered in admitted if sent >= start and answered <= start + WINDOW)
                for start, _ in admitted), default=0)


class QrSignIn:
    """A sign-in by QR code whose steps reach different gateways."""

    def __init__(self, fleet, employee="u1001"):
        self.fleet, self.employee, self.browser, self.phone = fleet, employee, {}, {}

    def at(self, number, cookies):
        return Client(self.fleet, self.fleet.gateways.ports[number], cookies)

    def issue(self, number):
        self.ticket = self.at(number, self.browser).until(200, "GET", "/api/auth/qrcode").data
        return self

    def scan(self, number):
        """Scans the QR code, and again while a fault refuses it, since the platform's code can be used only once. If a refused scan was
        done nevertheless, the ticket belongs to it, and another QR code is needed."""
        end, was_refused = time.monotonic() + PATIENCE, False
        while True:
            answer = self.scan_once(number)
            if answer is not None and answer.status == 302:
                self.page = answer.headers["Location"].split("#")[0]
                return self
            if not (is_refused(answer) or was_refused) or time.monotonic() > end:
                raise DrillFault(f"a scan was answered with {answer and answer.status}")
            if not is_refused(answer):
                self.issue(number)
            was_refused = is_refused(answer)

    def scan_once(self, number):
        url = urllib.parse.urlsplit(self.ticket["qrcode_url"].split("#")[0])
        authorize = Client(self.fleet, url.port).until(302, "GET", f"{url.path}?{url.query}&as={self.employee}")
        callback = urllib.parse.urlsplit(authorize.headers["Location"])
        return self.at(number, self.phone).send("GET", f"{callback.path}?{callback.query}")

    def confirm(self, number):
        page = urllib.parse.urlsplit(self.page)
        path = f"{page.path}?{page.query}" if page.query else page.path
        html = self.at(number, self.phone).until(200, "GET", path).body.decode()
        form = next(part for part in html.split("<form")[1:] if re.search(r'value="confirm"', part))
        fields = {"answer": "confirm"}
        for tag in re.findall(r"<input[^>]*hidden[^>]*>", form):
            fields[re.search(r'name="([^"]*)"', tag).group(1)] = re.search(r'value="([^"]*)"', tag).group(1)
        action = re.search(r'action="([^"]*)"', form)
        target = urllib.parse.urljoin(path, action.group(1).replace("&#x2f;", "/")) if action else path
        # Whether a refused confirmation was done, the next poll says.
        self.at(number, self.phone).until(200, "POST", target, form=fields, repeated=400)
        return self

    def poll(self, number):
        path = f"/api/auth/scan/status?ticket={urllib.parse.quote(self.ticket['ticket'])}"
        state = self.at(number, self.browser).until(200, "GET", path).data
        if state["status"] != "confirmed":
            raise DrillFault(f"the QR code is {state['status']} after it was confirmed")
        return state["token"]


def run(fleet, report):
    """Runs the drill and returns the promises that were broken."""
    record, stop, gateways = Record(), threading.Event(), fleet.gateways
    busy = Client(fleet, gateways.ports[0]).until(
        200, "POST", "/api/dev/login", body={"employee_id": RATED_EMPLOYEE}).data["token"]
    record.tokens.add(busy)
    threads = [Worker(fleet, record, stop, number) for number in range(WORKERS)]
    threads.append(threading.Thread(target=keep_busy, args=(fleet, record, stop, busy), daemon=True))
    for thread in threads:
        thread.start()
    try:
        break_things(fleet, record, report)
    except DrillFault as fault:
        # The fleet is not whole, so that there is nothing to verify.
        return [str(fault), *record.faults]
    finally:
        stop.set()
        for thread in threads:
            thread.join(timeout=PATIENCE)
    verify(fleet, record, report)
    return record.faults


def break_things(fleet, record, report):
    gateways = fleet.gateways
    report("a QR code: issued by gateway 1, scanned at gateway 2, confirmed at gateway 3, polled at gateway 2")
    record.signed_in(QrSignIn(fleet).issue(0).scan(1).confirm(2).poll(1))

    report("the same; a Redis primary is killed after the scan, and returns as a replica when its own has taken over")
    sign_in = QrSignIn(fleet).issue(0).scan(1)
    primaries = fleet.redis.primaries()
    begun, record.fails_over = time.monotonic(), True
    primaries[0][0].kill()
    wait_until("a replica takes over", lambda: len(fleet.redis.primaries()) == len(primaries))
    report(f"  the replica has taken over after {time.monotonic() - begun:.1f} s")
    primaries[0][0].start()
    record.signed_in(sign_in.confirm(2).poll(1))
    wait_until_ready(fleet)
    report(f"  all gateways are ready again after {time.monotonic() - begun:.1f} s")
    record.fails_over = False

    report("the same; gateway 1 is killed after it has issued the QR code")
    sign_in = QrSignIn(fleet).issue(0)
    gateways.gateways[0].kill()
    record.signed_in(sign_in.scan(1).confirm(2).poll(1))

    report("gateway 2 is paused; an employee logs out on gateway 3; gateway 2 continues")
    here, there = Client(fleet, gateways.ports[2]), Client(fleet, gateways.ports[1])
    token = here.until(200, "POST", "/api/dev/login", body={"employee_id": "u1001"}).data["token"]
    there.until(200, "GET", "/api/auth/me", token=token)
    gateways.gateways[1].send(signal.SIGSTOP)
    try:
        here.until(200, "POST", "/api/auth/logout", token=token, body={}, repeated=401)
        time.sleep(2 * REVOCATION)
        # Sent while it is paused, so that it is the first thing that it reads.
        answers, asking = [], threading.Thread(target=lambda: answers.append(there.send("GET", "/api/auth/me", token)))
        asking.start()
        time.sleep(3)
    finally:
        gateways.gateways[1].send(signal.SIGCONT)
    asking.join(timeout=PATIENCE)
    if not answers or answers[0] is None or answers[0].status == 200:
        record.fault(f"a paused gateway answered {answers and answers[0] and answers[0].status} to a token that was logged out meanwhile")
    record.logged_out(token)

    report("gateway 1 is started again")
    gateways.restart(0)
    wait_until_ready(fleet)


def wait_until(what, is_so):
    end = time.monotonic() + PATIENCE
    while not is_so():
        if time.monotonic() > end:
            raise DrillFault(f"waited in vain until {what}")
        time.sleep(0.1)


def wait_until_ready(fleet):
    for port in fleet.gateways.ports:
        Client(fleet, port).until(200, "GET", "/api/ready")


def verify(fleet, record, report):
    """Compares what was answered with what every gateway says afterwards."""
    kept, ended = sorted(record.tokens), sorted(record.ended)
    for number, port in enumerate(fleet.gateways.ports):
        client = Client(fleet, port)
        for token, expected, what in [*((token, 200, "an issued token") for token in kept),
                                      *((token, 401, "a token after its logout") for token in ended),
                                      ("a.b.c", 401, "a forged token")]:
            try:
                client.until(expected, "GET", "/api/auth/me", token=token)
            except DrillFault as fault:
                record.fault(f"gateway {number + 1}: {what}: {fault}")
    if record.counts[LATE] > record.counts["logouts"] * MOST_LATE:
        record.fault(f"{record.counts[LATE]} of {record.counts['logouts']} tokens were {LATE}")
    admitted = most_in_a_window(record.admitted)
    if admitted > LIMIT:
        record.fault(f"a shared rate of {LIMIT} admitted {admitted} requests within a window")
    # What a killed gateway has leased and not used is lost for one window: about its third of the limit at most.
    if admitted < LIMIT * 2 / 3:
        record.fault(f"a shared rate of {LIMIT} admitted only {admitted} requests")
    counts = ", ".join(f"{number} {what}" for what, number in record.counts.items())
    report(f"{counts}; {len(kept)} issued tokens are valid and {len(ended)} ended ones refused on every gateway")
    report(f"the shared rate of {LIMIT} a minute admitted {admitted}")
    if record.closings:
        times = sorted(record.closings)
        report(f"{len(times)} WebSockets were closed with 4401 after the logout was sent: half of them within "
               f"{times[len(times) // 2] * 1000:.0f} ms, 99 % within {times[int(len(times) * 0.99)] * 1000:.0f} ms")
