#!/usr/bin/env python3
"""Runs third-party WeCom client libraries against the simulated platform.

    pip install wechatpy==2.0.0a26 wecom-sdk==1.0.0
    python platform_clients.py http://127.0.0.1:PORT

The libraries come unchanged from PyPI; only the host that they call differs. Needs a simulator with default switches
and resets them. Exit code 1 if a check fails.
"""

import asyncio
import sys
from urllib.parse import parse_qs, urlsplit

import requests
from requests.adapters import HTTPAdapter
from wechatpy.exceptions import APILimitedException, WeChatClientException
from wechatpy.work import WeChatClient
from wecom_sdk import Wecom
from wecom_sdk.exceptions.general import SDKException

CORP_ID = "wwdemo"
SECRET = "simulated-secret-of-the-help-desk"
CALLBACK = "https://desk.example/api/auth/oauth2/callback"


class SimulatorAdapter(HTTPAdapter):
    """Sends WeCom requests to the simulator."""

    def __init__(self, base):
        super().__init__()
        self.base = base

    def send(self, request, **options):
        parts = urlsplit(request.url)
        request.url = f"{self.base}{parts.path}?{parts.query}"
        return super().send(request, **options)


class Simulator:
    """The simulator's control interface."""

    def __init__(self, base):
        self.base = base

    def code_from(self, authorize_url, member):
        """Opens an authorize URL as this member and returns the code."""
        parts = urlsplit(authorize_url)
        page = f"{self.base}{parts.path}?{parts.query}&as={member}"
        response = requests.get(page, allow_redirects=False, timeout=10)
        assert response.status_code == 302, f"{page}: {response.status_code}"
        return parse_qs(urlsplit(response.headers["location"]).query)["code"][0]

    def switch(self, **switches):
        response = requests.patch(f"{self.base}/simulator/switches", json=switches, timeout=10)
        assert response.status_code == 200, response.text

    def reset(self):
        requests.delete(f"{self.base}/simulator/switches", timeout=10).raise_for_status()

    def revoke_tokens(self):
        requests.post(f"{self.base}/simulator/tokens/revoke", timeout=10).raise_for_status()

    def calls(self, path):
        return requests.get(f"{self.base}/simulator/calls", timeout=10).json().get(path, 0)


def refusal(action, expected):
    """Asserts that the action raises this errcode, and returns the exception."""
    try:
        action()
    except WeChatClientException as error:
        assert error.errcode == expected, f"errcode {error.errcode}, expected {expected}"
        return error
    raise AssertionError(f"nothing was raised, expected errcode {expected}")


def wechatpy(base, simulator):
    client = WeChatClient(CORP_ID, SECRET)
    client._http.mount("https://qyapi.weixin.qq.com", SimulatorAdapter(base))

    def token():
        response = client.fetch_access_token()
        assert response["access_token"] and response["expires_in"] <= 7200, response
        assert client.access_token == response["access_token"]

    def code_exchange():
        code = simulator.code_from(client.oauth.authorize_url(CALLBACK, state="login"), "u1001")
        assert client.oauth.get_user_info(code)["UserId"] == "u1001"
        refusal(lambda: client.oauth.get_user_info(code), 40029)

    def connected_and_outside():
        code = simulator.code_from(client.oauth.authorize_url(CALLBACK), "p7001")
        assert client.oauth.get_user_info(code)["UserId"] == "wwpartner/p7001"
        simulator.switch(members={"u1001": "outsider"})
        code = simulator.code_from(client.oauth.authorize_url(CALLBACK), "u1001")
        response = client.oauth.get_user_info(code)
        assert response["OpenId"] and "UserId" not in response, response

    def users():
        user = client.user.get("A2001")
        assert (user["userid"], user["name"], user["status"]) == ("a2001", "Alice Chen", 1), user
        assert "avatar" not in user, "a new application gets no avatar"
        refusal(lambda: client.user.get("z9999"), 60111)

    def departments():
        assert client.department.get(2)["name"] == "IT"
        assert [found["id"] for found in client.department.list()] == [1, 2, 3, 4, 5]
        assert [found["id"] for found in client.department.simple_list(1)] == [1, 2, 3, 4, 5]
        assert [found["userid"] for found in client.department.get_users(2)] == ["a2001", "s3001", "m5001"]
        assert client.department.get_map_users(5) == {"Nora Lind": "n6001"}
        refusal(lambda: client.department.get(99), 60003)

    def bad_code():
        refusal(lambda: client.oauth.get_user_info("forged"), 40029)

    def stale_token():
        for errcode in (40014, 42001):
            simulator.switch(stale_token_errcode=errcode)
            stale = client.access_token
            simulator.revoke_tokens()
            before = simulator.calls("/cgi-bin/gettoken")
            assert client.user.get("u1001")["userid"] == "u1001", errcode
            assert simulator.calls("/cgi-bin/gettoken") == before + 1, "one new token"
            assert client.access_token != stale

    def busy_limited_broken():
        simulator.switch(busy={"/cgi-bin/user/get": 1})
        refusal(lambda: client.user.get("u1001"), -1)
        simulator.switch(frequency_limit=0)
        assert isinstance(refusal(lambda: client.user.get("u1001"), 45009), APILimitedException)
        simulator.switch(frequency_limit=None, bad_gateway={"*": 1})
        refusal(lambda: client.user.get("u1001"), None)
        assert client.user.get("u1001")["userid"] == "u1001"

    def wrong_secret():
        other = WeChatClient(CORP_ID, "wrong")
        other._http.mount("https://qyapi.weixin.qq.com", SimulatorAdapter(base))
        refusal(other.fetch_access_token, 40001)

    def addresses():
        assert client.misc.get_wechat_ips() == ["127.0.0.1"]

    return [token, code_exchange, connected_and_outside, users, departments, bad_code, stale_token,
            busy_limited_broken, wrong_secret, addresses]


def wecom_sdk(base, simulator):
    """This library has no code exchange and never renews a token early. Its get_user_in_department_detail is skipped:
    it expects an errcode in each member, which WeCom does not send."""

    class SimulatedWecom(Wecom):
        BASE_URL = f"{base}/cgi-bin"

    client = SimulatedWecom(CORP_ID, SECRET)

    def raised(action, expected):
        try:
            asyncio.run(action)
        except SDKException as error:
            assert error.errcode == str(expected), f"errcode {error.errcode}, expected {expected}"
            return
        raise AssertionError(f"nothing was raised, expected errcode {expected}")

    async def access_token():
        return await client.access_token

    def token():
        first = asyncio.run(access_token())
        assert first and asyncio.run(access_token()) == first

    def users():
        user = asyncio.run(client.get_user("a2001"))
        assert (user["userid"], user["name"], user["department"]) == ("a2001", "Alice Chen", [2]), user
        raised(client.get_user("z9999"), 60111)

    def departments():
        assert [found.id for found in asyncio.run(client.get_departments())] == [1, 2, 3, 4, 5]
        assert [found.name for found in asyncio.run(client.get_departments(5))] == ["财务部"]
        people = asyncio.run(client.get_user_in_department(2))["userlist"]
        assert [person["userid"] for person in people] == ["a2001", "s3001", "m5001"], people

    def old_application():
        simulator.switch(old_application=True)
        user = asyncio.run(client.get_user("u1001"))
        assert user["email"] == "u1001@mail.example" and user["gender"] == 0, user

    def stale_token():
        simulator.revoke_tokens()
        raised(client.get_user("u1001"), 40014)
        client.access_token_valid_time = None
        assert asyncio.run(client.get_user("u1001"))["userid"] == "u1001"

    def wrong_secret():
        raised(SimulatedWecom(CORP_ID, "wrong").get_user("u1001"), 40001)
        raised(SimulatedWecom("wwother", SECRET).get_user("u1001"), 40013)

    return [token, users, departments, old_application, stale_token, wrong_secret]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    base = sys.argv[1].rstrip("/")
    simulator = Simulator(base)
    failed = 0
    for client in (wechatpy, wecom_sdk):
        for check in client(base, simulator):
            name = f"{client.__name__}: {check.__name__.replace('_', ' ')}"
            try:
                check()
                print(f"ok    {name}")
            except Exception as fault:  # any exception fails the check; the next one still runs
                failed += 1
                print(f"FAIL  {name}: {type(fault).__name__}: {fault}")
            finally:
                simulator.reset()
    print("all checks passed" if failed == 0 else f"{failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
