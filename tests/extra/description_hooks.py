"""Who asks, when schemathesis holds the gateway against its description.

Three people, so that nobody ends the session that the others go on with: an administrator, stepped up, for
`/api/admin`; an agent for what leaves sessions alone; and for what ends a session or changes its role an employee with
a new session each time.
"""

import itertools
import os

import schemathesis
from description import call, one_time_password

BASE = os.environ["DESKGATE_BASE"]
ADMINISTRATOR, AGENT, EMPLOYEE = "m5001", "a2001", "u1001"

# What is gone, or another, afterwards.
SPENDING = {"logOut", "switchRole", "endOtherSessions", "endSession"}

NUMBERS = itertools.count()


def sign_in(employee_id):
    return call(BASE, "POST", "/api/dev/login", body={"employee_id": employee_id})["token"]


def operation_id(case):
    return case.operation.definition.raw.get("operationId")


AGENTS_TOKEN = sign_in(AGENT)


@schemathesis.auth(refresh_interval=None)
class Callers:
    def get(self, case, context):
        if case.path.startswith("/api/admin/"):
            return os.environ["DESKGATE_ADMINISTRATOR"]
        return sign_in(EMPLOYEE) if operation_id(case) in SPENDING else AGENTS_TOKEN

    def set(self, case, token, context):
        case.headers = case.headers or {}
        case.headers["Authorization"] = f"Bearer {token}"


@schemathesis.hook
def before_call(context, case, kwargs):
    spare_the_run(case)
    if case.meta is not None and case.meta.generation.mode.is_positive and next(NUMBERS) % 2:
        make_real(case)


def spare_the_run(case):
    """Turns what an administrator would do to the run's own people on the employee: schemathesis uses again what it
    has seen in answers, names of employees among it."""
    if not case.path.startswith("/api/admin/") or case.method.upper() == "GET":
        return
    for place in (case.query, case.body):
        if isinstance(place, dict) and place.get("employee_id") in (ADMINISTRATOR, AGENT):
            place["employee_id"] = EMPLOYEE


def make_real(case):
    """Gives half of the sound requests what nobody can guess: the id of a session, the code of a device."""
    token = case.headers.get("Authorization", "").removeprefix("Bearer ") if case.headers else ""
    match operation_id(case):
        case "endSession":
            sign_in(EMPLOYEE)
            items = call(BASE, "GET", "/api/auth/sessions", token)["items"]
            case.path_parameters["id"] = next(item["id"] for item in items if not item["current"])
        case "bindOtp":
            secret = call(BASE, "POST", "/api/auth/otp-setup", token)["secret"]
            case.body["code"] = one_time_password(secret)
