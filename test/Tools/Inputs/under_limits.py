"""Plans a training step under smaller and smaller memory limits: each plan fits and says so,
none of those beside it that fit is faster, and less memory does not take less time.
usage: under_limits.py SHARE… -- partita plan …, shares of what the fastest plan needs"""
import pathlib
import re
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "E2E"))
import tier  # noqa: E402

split = sys.argv.index("--")
shares, command = [float(word) for word in sys.argv[1:split]], sys.argv[split + 1:]
BYTES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
SECONDS = {"µs": 1e-6, "ms": 1e-3, "s": 1}


def size(number, unit):
    return float(number) * BYTES[unit]


def plan(*more):
    done = subprocess.run([*command, *more], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    step = re.search(r"^step: ([0-9.]+) (\S+) =", done.stdout, re.M)
    memory = re.search(r"^memory per device: ([0-9.]+) (\S+) ", done.stdout, re.M)
    for name, ratio, rest in re.findall(r"^  (\S.*?) +[0-9.]+ .?s, ([0-9.]+) of ours, ([^\n]*)$",
                                        done.stdout, re.M):
        assert float(ratio) >= 1 or "does not fit" in rest, (name, ratio, done.stdout)
    return float(step[1]) * SECONDS[step[2]], size(*memory.groups()), done.stdout


seconds, needed, _ = plan()
for share in tier.sample("limits-training", sorted(shares, reverse=True)):
    limit = int(share * needed)
    now, memory, text = plan("--memory", str(limit))
    assert memory <= limit * 1.0001, (limit, text)
    assert now >= seconds * 0.9, (limit, seconds, text)  # plans are within some percent
    print(f"{share}: {now * 1e6:.1f} µs, {memory:.0f} of {limit} B")
    seconds = now
