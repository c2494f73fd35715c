"""Disks that fill, fail, lag or vanish, and SIGKILL during writes."""

import asyncio
import os
import shutil
import subprocess
import time

from gateway import HERE, Fault, Gateway, Ledger


def faulty_disk(folder):
    """Builds the library that injects faults; returns the environment of the gateway and its control file."""
    library, control = folder / "disk_faults.so", folder / "disk_faults"
    build = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(HERE / "disk_faults.c"), "-ldl"]
    subprocess.run(build, check=True)
    set_faults(control)
    return {"LD_PRELOAD": str(library), "DISK_FAULTS": str(control)}, control


def set_faults(control, *lines):
    following = control.with_suffix(".next")
    following.write_text("\n".join(lines))
    os.replace(following, control)


async def until_ready(gateway, status, seconds=10):
    """Seconds until `/api/ready` answers with the status; None if it does not in time."""
    begun = time.monotonic()
    while time.monotonic() - begun < seconds:
        if (await gateway.send("GET", "/api/ready")).status == status:
            return time.monotonic() - begun
        await asyncio.sleep(0.05)
    return None


async def break_and_mend(gateway, break_disk, mend_disk):
    """Signs people in and out before, during and after a fault; then kills the gateway and compares."""
    ledger = Ledger(gateway)
    for _ in range(30):
        await ledger.sign_in()
    for _ in range(5):
        await ledger.log_out_one()
    break_disk()
    # The first ones may still find room in a file that is already there.
    during, refused, not_ready = 0, 0, None
    while refused < 40 and during < 2000:
        during, answer = during + 1, await ledger.sign_in()
        if not answer.is_done:
            refused += 1
            await ledger.log_out_one()
        if refused == 20:
            not_ready = await until_ready(gateway, 503, seconds=5)
    mend_disk()
    ready = await until_ready(gateway, 200)
    after = 0
    for _ in range(47):
        after += (await ledger.sign_in()).is_done
    disabled = sum(gateway.command("employee", word, "a2001").returncode == 0 for word in ["disable", "enable"] * 4)
    gateway.kill()
    gateway.restart()
    lost = await ledger.lost()
    note = (f"{refused} of {during} sign-ins refused during the fault, {after} of 47 done after it, "
            f"{disabled} of 8 commands done; not ready {seconds(not_ready)}, ready again {seconds(ready)}")
    failed = lost > 0 or after < 47 or disabled < 8 or refused < 40 or None in (not_ready, ready)
    return {"tried": ledger.tried, "acknowledged": ledger.acknowledged, "lost": lost, "note": note, "failed": failed}


def seconds(value):
    return "never" if value is None else f"after {value:.1f} s"


async def full_disk(options, folder):
    """A file system of 16 MB that is really full."""
    if os.geteuid() != 0:
        raise Fault("it needs root to mount a file system")
    volume = folder / "volume"
    volume.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "none", str(volume)], check=True, capture_output=True)
    try:
        with Gateway(options.program, volume) as gateway:
            filler = volume / "filler"

            def fill():
                with open(filler, "wb") as file:
                    try:
                        while True:
                            file.write(b"x" * 65536)
                            file.flush()
                    except OSError:
                        pass

            return await break_and_mend(gateway, fill, filler.unlink)
    finally:
        subprocess.run(["umount", "-l", str(volume)], check=False)


async def write_error(options, folder):
    return await injected(options, folder, "file=.db", "write_error=EIO")


async def sync_error(options, folder):
    return await injected(options, folder, "file=.db", "sync_error=EIO")


async def injected(options, folder, *faults):
    environment, control = faulty_disk(folder)
    with Gateway(options.program, folder, environment=environment) as gateway:
        return await break_and_mend(gateway, lambda: set_faults(control, *faults), lambda: set_faults(control))


async def slow_sync(options, folder, count=800, milliseconds=20):
    """Sign-ins at once on a disk whose sync takes 20 ms."""
    environment, control = faulty_disk(folder)
    with Gateway(options.program, folder, environment=environment) as gateway:
        set_faults(control, "file=.db", f"sync_ms={milliseconds}")
        ledger, begun = Ledger(gateway), time.monotonic()
        answers = await asyncio.gather(*(ledger.sign_in() for _ in range(count)))
        took = time.monotonic() - begun
        set_faults(control)
        gateway.kill()
        gateway.restart()
        lost, done = await ledger.lost(), sum(answer.is_done for answer in answers)
        silent = sum(answer.status == 0 for answer in answers)
    note = f"{done} of {count} done in {took:.1f} s, {silent} without an answer"
    failed = lost > 0 or done < count or took > 3
    return {"tried": count, "acknowledged": ledger.acknowledged, "lost": lost, "note": note, "failed": failed}


async def deleted_data(options, folder):
    """The data directory is deleted while the gateway runs."""
    with Gateway(options.program, folder) as gateway:
        await gateway.sign_in()
        shutil.rmtree(gateway.data)
        noticed = await until_ready(gateway, 503)
        answers = [await gateway.sign_in() for _ in range(10)]
    acknowledged = sum(answer.is_done for answer in answers)
    note = "not noticed" if noticed is None else f"noticed after {noticed:.1f} s"
    return {"tried": 10, "acknowledged": acknowledged, "lost": acknowledged, "note": note,
            "failed": acknowledged > 0 or noticed is None}


async def kill(options, folder):
    """SIGKILL while eight clients sign in and out."""
    with Gateway(options.program, folder) as gateway:
        ledger = Ledger(gateway)
        for number in range(options.kills):
            async def write():
                while gateway.process.poll() is None:
                    await ledger.sign_in(timeout=2)
                    await ledger.log_out_one()

            writers = [asyncio.create_task(write()) for _ in range(8)]
            await asyncio.sleep(0.05 + 0.01 * (number % 20))
            gateway.kill()
            await asyncio.gather(*writers)
            gateway.restart()
        lost = await ledger.lost()
    note = f"{options.kills} kills"
    return {"tried": ledger.tried, "acknowledged": ledger.acknowledged, "lost": lost, "note": note}
