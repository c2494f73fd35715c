"""The wall clock of a running gateway jumps, the monotonic one does not."""

import asyncio
import glob
import os
import signal
import time

from gateway import Fault, Gateway, Ledger


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
        set_offset(control, 0)
        restored = [await gateway.is_live(token) for token in before]
    done = sum(answer.is_done for answer in after)
    lost = int(revived) + int(not logged_out)
    lost += sum(not is_live for is_live in restored)
    # A token that was issued in what is now the future is refused until the clock is right again.
    expected = len(known) if seconds > 0 else 0
    note = (f"{done} of 10 sign-ins done, {sum(fresh)} of their tokens accepted, {sum(known)} of {len(known)} earlier "
            f"ones, ready {ready}, in {took:.1f} s; {sum(restored)} earlier ones once the clock is right again")
    failed = lost > 0 or done < 10 or sum(fresh) < done or sum(known) != expected or ready != 200
    return {"tried": 16, "acknowledged": 6 + done, "lost": lost, "note": note, "failed": failed}


async def suspend(options, folder, seconds=5, count=50):
    """The process stands still while clients send requests, as a machine that is suspended or starved."""
    with Gateway(options.program, folder) as gateway:
        ledger = Ledger(gateway)
        for _ in range(10):
            await ledger.sign_in()
        gateway.process.send_signal(signal.SIGSTOP)
        waiting = [asyncio.create_task(ledger.sign_in(timeout=seconds + 20)) for _ in range(count)]
        await asyncio.sleep(seconds)
        gateway.process.send_signal(signal.SIGCONT)
        begun = time.monotonic()
        answers = await asyncio.gather(*waiting)
        took = time.monotonic() - begun
        ready = (await gateway.send("GET", "/api/ready")).status
        gateway.kill()
        gateway.restart()
        lost = await ledger.lost()
    done = sum(answer.is_done for answer in answers)
    note = f"{done} of {count} requests that waited were answered {took:.1f} s after {seconds} s of standstill, ready {ready}"
    return {"tried": ledger.tried, "acknowledged": ledger.acknowledged, "lost": lost, "note": note,
            "failed": lost > 0 or done < count or ready != 200}


async def step_back(options, folder):
    return await jump(options, folder, -3600)


async def step_forward(options, folder):
    return await jump(options, folder, 3600)
