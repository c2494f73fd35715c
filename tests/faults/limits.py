"""Too few descriptors, too little memory."""

import asyncio
import time

from gateway import Gateway, Ledger


async def descriptors(options, folder):
    """64 descriptors and 200 clients that stay connected."""
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
        await asyncio.sleep(2)
        busy = gateway.cpu_seconds() - before
        for _, writer in opened:
            writer.close()
        begun, recovered = time.monotonic(), None
        while recovered is None and time.monotonic() - begun < 10:
            if (await ledger.sign_in(timeout=2)).is_done:
                recovered = time.monotonic() - begun
        lost = await ledger.lost()
    note = f"{busy:.1f} s of CPU in the 2 s without descriptors; "
    note += "did not recover" if recovered is None else f"recovered after {recovered:.1f} s"
    return {"tried": ledger.tried, "acknowledged": ledger.acknowledged, "lost": lost, "note": note,
            "failed": lost > 0 or recovered is None or busy > 1}


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
        if not alive:
            gateway.restart()
        for _ in range(20):
            await ledger.sign_in()
        lost = await ledger.lost()
    answered = sum(answer.status > 0 for answer in answers)
    note = f"{answered} of 400 password sign-ins answered; the process {'lived' if alive else 'died'}"
    return {"tried": ledger.tried + 400, "acknowledged": ledger.acknowledged, "lost": lost, "note": note,
            "failed": lost > 0 or not alive}
