"""The wall clock of a running gateway jumps, the monotonic one does not."""

import glob
import os
import time

from gateway import Fault, Gateway


def movable_clock(folder):
    """The environment of a gateway whose clock a file moves, and that file."""
    found = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
    if not found:
        raise Fault("libfaketime is not installed (Debian: faketime)")
    control = folder / "clock"
    set_offset(control, 0)
    return {"LD_PRELOAD": found[0], "FAKETIME_TIMESTAMP_FILE": str(control), "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1"}, control


def set_offset(control, seconds):
    following = control.with_suffix(".next")
    following.write_text(f"{seconds:+d}\n")
    os.replace(following, control)


async def jump(options, folder, seconds):
    """Signs in before and after a jump, and asks whether every part still answers."""
    environment, control = movable_clock(folder)
    with Gateway(options.program, folder, environment=environment) as gateway:
        before = [(await gateway.sign_in()).data["token"] for _ in range(5)]
        ended = before.pop()
        logged_out = (await gateway.log_out(ended)).is_done
        set_offset(control, seconds)
        begun = time.monotonic()
        after = [await gateway.sign_in() for _ in range(10)]
        ready = (await gateway.send("GET", "/api/ready")).status
        known = [await gateway.is_live(token) for token in before]
        revived = await gateway.is_live(ended)
        fresh = [await gateway.is_live(answer.data["token"]) for answer in after if answer.is_done]
        took = time.monotonic() - begun
    done = sum(answer.is_done for answer in after)
    lost = int(revived) + int(not logged_out)
    note = (f"{done} of 10 sign-ins done, {sum(fresh)} of their tokens accepted, {sum(known)} of {len(known)} earlier "
            f"ones, ready {ready}, in {took:.1f} s")
    failed = lost > 0 or done < 10 or sum(fresh) < done or ready != 200
    return {"tried": 16, "acknowledged": 6 + done, "lost": lost, "note": note, "failed": failed}


async def step_back(options, folder):
    return await jump(options, folder, -3600)


async def step_forward(options, folder):
    return await jump(options, folder, 3600)
