"""Mixed load for minutes: memory and descriptors must be flat."""

import asyncio
import statistics
import sys
import time

from gateway import Gateway

CLIENTS = 16


async def mixed_load(options, folder):
    """Signs in and out, polls tickets, sends good and bad tokens, opens and aborts connections."""
    seconds, counts, samples = max(options.soak, 30), {"done": 0, "failed": 0}, []
    upstream = await asyncio.start_server(answer, "127.0.0.1", 0)
    address = "127.0.0.1:%d" % upstream.sockets[0].getsockname()[1]
    # One address sends everything.
    settings = ["limits.rate_keys=100000"]
    with Gateway(options.program, folder, upstream=address, settings=settings) as gateway:
        end = time.monotonic() + seconds
        clients = [asyncio.create_task(client(gateway, end, counts)) for _ in range(CLIENTS)]
        while time.monotonic() < end:
            await asyncio.sleep(min(10, max(0.1, end - time.monotonic())))
            samples.append((gateway.memory_mib(), gateway.descriptors()))
            print(f"  {int(end - time.monotonic())} s left, {samples[-1][0]:.1f} MiB, {samples[-1][1]} descriptors, "
                  f"{counts['done']} requests", file=sys.stderr, flush=True)
        await asyncio.gather(*clients)
    upstream.close()
    # The first third warms caches up.
    steady = samples[len(samples) // 3:]
    early, late = halves([memory for memory, _ in steady])
    early_files, late_files = halves([files for _, files in steady])
    note = (f"{counts['done']} requests, {counts['failed']} failed; {early:.1f} then {late:.1f} MiB, "
            f"{early_files:.0f} then {late_files:.0f} descriptors")
    failed = counts["failed"] > 0 or late > early * 1.1 + 2 or late_files > early_files + CLIENTS
    return {"tried": counts["done"] + counts["failed"], "acknowledged": counts["done"], "lost": 0, "note": note,
            "failed": failed}


def halves(values):
    """The medians of the first and the second half."""
    middle = len(values) // 2
    return statistics.median(values[:middle] or values), statistics.median(values[middle:])


async def answer(reader, writer):
    try:
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    except (OSError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def client(gateway, end, counts):
    def note(expected):
        counts["done" if expected else "failed"] += 1

    while time.monotonic() < end:
        signed_in = await gateway.sign_in()
        note(signed_in.is_done)
        if not signed_in.is_done:
            continue
        token = signed_in.data["token"]
        for number in range(20):
            note((await gateway.send("GET", f"/api/desk/tickets/{number}", token)).status == 200)
        note((await gateway.send("GET", "/api/desk/tickets", token[:-9] + "AAAAAAAAA")).status in (401, 429))
        note((await gateway.send("GET", "/api/auth/qrcode")).status in (200, 429))
        _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(b"GET /api/desk/unfinished HTTP/1.1\r\nHost: ")
        writer.close()
        note((await gateway.log_out(token)).is_done)
        note((await gateway.send("GET", "/api/auth/me", token)).status == 401)
