"""The callers of the schemathesis run.

Three employees, so that no request ends a session that later requests need: an administrator with a step-up for
`/api/admin`, an agent for operations that keep the session, and an employee with a new session for each operation that
ends a session or changes its role.
"""

import itertools
import os

import schemathesis
from openapi_conformance import call, one_time_password

BASE = os.environ["DESKGATE_BASE"]
ADMINISTRATOR, AGENT, EMPLOYEE = "m5001", "a2001", "u1001"

# Operations that end or change the session of their token.
SESSION_CHANGING = {"logOut", "switchRole", "endOtherSessions", "endSession"}

NUMBERS = itertools.count()


def sign_in(employee_id):
    return call(BASE, "POST", "/api/dev/login", body={"employee_id": employee_id})["token"]


def operation_id(case):
    return case.operation.definition.raw.get("operationId")


AGENT_TOKEN = sign_in(AGENT)


@schemathesis.auth(refresh_interval=None)
class Callers:
    def get(self, case, context):
        if case.path.startswith("/api/admin/"):
            return os.environ["DESKGATE_ADMINISTRATOR"]
        return sign_in(EMPLOYEE) if operation_id(case) in SESSION_CHANGING else AGENT_TOKEN

    def set(self, case, token, context):
        case.headers = case.headers or {}
        case.headers["Authorization"] = f"Bearer {token}"


@schemathesis.hook
def before_call(context, case, kwargs):
    redirect_to_employee(case)
    if case.meta is not None and case.meta.generation.mode.is_positive and next(NUMBERS) % 2:
        fill_in_valid_values(case)


def redirect_to_employee(case):
    """Replaces the administrator and the agent as targets of admin operations: schemathesis reuses ids from responses
    and would otherwise end the sessions of the run."""
    if not case.path.startswith("/api/admin/") or case.method.upper() == "GET":
        return
    for part in (case.query, case.body):
        if isinstance(part, dict) and part.get("employee_id") in (ADMINISTRATOR, AGENT):
            part["employee_id"] = EMPLOYEE


def fill_in_valid_values(case):
    """Fills in values that cannot be generated: the id of a session, the code of a device."""
    token = case.headers.get("Authorization", "").removeprefix("Bearer ") if case.headers else ""
    match operation_id(case):
        case "endSession":
            sign_in(EMPLOYEE)
            items = call(BASE, "GET", "/api/auth/sessions", token)["items"]
            case.path_parameters["id"] = next(item["id"] for item in items if not item["current"])
        case "bindOtp":
            # Without a device, so that the recent sign-in is enough.
            call(BASE, "DELETE", f"/api/admin/otp?employee_id={AGENT}", os.environ["DESKGATE_ADMINISTRATOR"])
            secret = call(BASE, "POST", "/api/auth/otp-setup", token)["secret"]
            case.body["code"] = one_time_password(secret)
