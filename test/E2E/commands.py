"""Commands that are under way: what they say, how far they are, and how they end."""
import os
import re
import time


def says(expected, actual):
    if not re.search(expected, actual, re.MULTILINE):
        raise RuntimeError(f"expected {expected!r}, got {actual!r}")


def ends_with(process, status):
    out, err = process.communicate(timeout=60)
    if process.returncode != status:
        raise RuntimeError(f"ended with {process.returncode}, not {status}: {out}{err}")
    return out + err


def await_steps(process, place, count):
    """Until so many steps are in the log."""
    end = time.time() + 60
    while time.time() < end and process.poll() is None:
        if os.path.exists(f"{place}/log.jsonl"):
            with open(f"{place}/log.jsonl") as file:
                if len(file.readlines()) >= count:
                    return
        time.sleep(0.01)
    raise RuntimeError(f"no {count} steps: {process.poll()} {process.communicate()}")
