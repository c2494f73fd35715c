"""Too few descriptors, too little memory."""

import asyncio
import time

from gateway import Gateway, Ledger


async def descriptors(options, folder):
    """64 descriptors and 200 clients that stay connected, while others sign in."""
    with Gateway(options.program, folder, limits=["prlimit", "--nofile=64:64"]) as gateway:
        ledger = Ledger(gateway)
        await ledger.sign_in()
        before = gateway.cpu_seconds()
        opened = []
        for _ in range(200):
            try:
                opened.append(await asyncio.wait_for(asyncio.open_connection("127.0.0.1", gateway.port), 2))
            except (OSError, asyncio.TimeoutError):
                pass
        without = sum([(await ledger.sign_in(timeout=0.5)).is_done for _ in range(4)])
        busy = gateway.cpu_seconds() - before
        for _, writer in opened:
            writer.close()
        begun, recovered = time.monotonic(), None
        while recovered is None and time.monotonic() - begun < 10:
            if (await ledger.sign_in(timeout=2)).is_done:
                recovered = time.monotonic() - begun
        after = sum([(await ledger.sign_in()).is_done for _ in range(20)])
        lost = await ledger.lost()
    note = f"{without} of 4 sign-ins done in 2 s without descriptors, {busy:.1f} s of CPU; "
    note += "did not recover" if recovered is None else f"recovered after {recovered:.1f} s, then {after} of 20 done"
    return {"tried": ledger.tried, "acknowledged": ledger.acknowledged, "lost": lost, "note": note,
            "failed": lost > 0 or recovered is None or after < 20 or busy > 1}


async def memory(options, folder):
    """192 MiB of data, and 400 password sign-ins at once, each of which wants 64 MiB for its hash."""
    limit = 192 * 1024 * 1024
    with Gateway(options.program, folder, limits=["prlimit", f"--data={limit}:{limit}"]) as gateway:
        ledger = Ledger(gateway)
        for _ in range(20):
            await ledger.sign_in()
        body = {"employee_id": "a2001", "password": "not the password"}
        flood = [gateway.send("POST", "/api/agents/login", body=body, timeout=30) for _ in range(400)]
        answers = await asyncio.gather(*flood)
        alive = gateway.process.poll() is None
        peak = gateway.memory_mib("VmHWM") if alive else 0
        if not alive:
            gateway.restart()
        after = sum([(await ledger.sign_in()).is_done for _ in range(20)])
        lost = await ledger.lost()
    answered = sum(answer.status > 0 for answer in answers)
    note = (f"{answered} of 400 password sign-ins answered, {after} of 20 others done after them; "
            f"the process {'lived' if alive else 'died'}, at most {peak:.0f} MiB resident")
    return {"tried": ledger.tried + 400, "acknowledged": ledger.acknowledged, "lost": lost, "note": note,
            "failed": lost > 0 or not alive or answered < 400 or after < 20}
