"""Runs that are killed (kill -9) and go on: at which moments, what of them, and what is left."""
import collections
import os
import re
import signal
import time

from generations import files_of, losses, same, states_of, steps_of

STEPS = 40
#: Moments of a run, by what a kill at them leaves in the folder (Traces.moment).
MOMENTS = ("start", "step", "snapshot", "write", "rename")
#: Targets of a kill: the command alone, a process that it has started, or all of them.
TARGETS = ("command", "rank", "all")


class Traces:
    """A folder of generations and the log beside it, as they are before a start."""

    def __init__(self, place):
        self.place = place
        self.aside = {name for name in self.names() if ".tmp-" in name}
        self.newest = max(self.generations(), default=0)
        self.log = self.changed()

    def names(self):
        return os.listdir(f"{self.place}/c") if os.path.exists(f"{self.place}/c") else []

    def generations(self):
        return steps_of(self.place) if os.path.exists(f"{self.place}/c") else []

    def changed(self):
        try:
            return os.stat(f"{self.place}/log.jsonl").st_mtime_ns
        except OSError:
            return 0

    def logged(self):
        """The last step that is in the log as a whole line."""
        try:
            with open(f"{self.place}/log.jsonl") as file:
                lines = file.read().split("\n")[:-1]
        except OSError:
            return 0
        return int(re.match(r'\{"step": ?(\d+)', lines[-1])[1]) if lines else 0

    def moment(self):
        """Moment of MOMENTS. A generation that loses its name to a newer one counts as rename."""
        aside = [name for name in self.names() if ".tmp-" in name and name not in self.aside]
        for name in sorted(aside, key=lambda it: int(it[5:it.index(".tmp-")]), reverse=True):
            if int(name[5:name.index(".tmp-")]) <= max(self.generations(), default=0):
                return "rename"
            try:
                files = os.listdir(f"{self.place}/c/{name}")
            except OSError:  # it has its name now
                return "rename"
            if any(file.startswith("manifest") for file in files):
                return "rename"
            return "write" if files else "snapshot"
        begun = self.changed() != self.log and self.logged() > self.newest
        return "step" if begun else "start"


def descendants(pid):
    result = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat") as file:
                parent = int(file.read().rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError):
            continue
        if parent == pid:
            result += [int(entry), *descendants(int(entry))]
    return result


def kill_all(pids):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def kill_rank(pid, draw):
    """Kills a process below the command: a rank, mpirun, or who watches it. False: there was
    none, or it had ended."""
    below = descendants(pid)
    try:
        if below:
            os.kill(draw.choice(below), signal.SIGKILL)
    except ProcessLookupError:
        return False
    return bool(below)


class Killed:
    """Runs of one plan, each killed again and again until its steps are done."""

    def __init__(self, work, plan, transport, draw, reference):
        self.work, self.plan, self.transport = work, plan, transport
        self.draw, self.reference = draw, reference[:STEPS]
        self.words = ["--steps", str(STEPS), "--save-every", "1", "--keep", "2", "--resume",
                      "--transport", transport]
        self.whole = work.place(f"whole-{plan}-{transport}")
        # Seconds until a run has made its first step.
        process, begin = self.start(self.whole), time.time()
        traces = Traces(self.whole)
        while traces.logged() == 0 and process.poll() is None:
            time.sleep(0.005)
        self.until_begun = time.time() - begin
        out, err = process.communicate(timeout=300)
        if process.returncode:
            raise RuntimeError(f"{plan} over {transport}: {out}{err}")
        self.runs, self.place, self.newest = 0, None, 0
        self.moments, self.targets = collections.Counter(), collections.Counter()

    def start(self, place):
        return self.work.start(self.plan, place, *self.words, start_new_session=True)

    def reach(self, process, traces, wanted):
        """Waits until a run is at a moment, or has ended."""
        end = time.time() + 60
        if wanted == "start":
            time.sleep(self.draw.random() * self.until_begun)
            return
        begin = traces.newest + self.draw.randrange(4)
        while traces.logged() <= begin and process.poll() is None and time.time() < end:
            time.sleep(0.001)
        end = min(end, time.time() + 1)  # some moments are short, and met by luck
        while traces.moment() != wanted and process.poll() is None and time.time() < end:
            time.sleep(0.0002)
        if wanted == "step":
            time.sleep(self.draw.random() * 0.01)

    def strike(self, process, target):
        """Kills what is drawn. A run that loses a rank ends by itself."""
        if target == "rank" and kill_rank(process.pid, self.draw):
            return
        kill_all(descendants(process.pid) if target == "all" else [])
        process.kill()

    def kill(self):
        """Kills once; False: the run had ended before."""
        if self.place is None:
            self.place = self.work.place(f"kills-{self.plan}-{self.transport}-{self.runs}")
            self.runs, self.newest = self.runs + 1, 0
        traces, process = Traces(self.place), self.start(self.place)
        self.reach(process, traces, self.draw.choice(MOMENTS))
        if process.poll() is not None:
            out, err = process.communicate()
            if process.returncode:
                raise RuntimeError(f"a run that went on ended with {process.returncode}: "
                                   f"{out}{err}")
            self.finish()
            return False
        target = self.draw.choice(TARGETS)
        seen = max([self.newest, *traces.generations()])
        self.strike(process, target)
        moment = traces.moment()
        out, err = process.communicate(timeout=60)
        found = traces.generations()
        if seen and (not found or found[-1] < seen):
            raise RuntimeError(f"step {seen} was saved, and now {found}: {out}{err}")
        self.newest = max([seen, *found])
        self.moments[moment] += 1
        self.targets[target] += 1
        if self.newest == STEPS:
            self.finish()
        return True

    def finish(self):
        """Lets a run come to its end, which is that of a run that was never killed."""
        what = f"{self.plan} over {self.transport}"
        self.work.run(self.plan, self.place, *self.words)
        if losses(self.place) != self.reference:
            raise RuntimeError(f"{what}: losses are not those of a run that was never killed")
        same(what, states_of(self.place, STEPS), states_of(self.whole, STEPS))
        left = [name for name in files_of(self.place) if not re.fullmatch(r"step-\d+", name)]
        if left:
            raise RuntimeError(f"{what}: {left} were left")
        self.place = None


def check_kills(work, plan, transport, draw, kills, reference):
    """kill -9 at drawn moments of what is drawn; every run comes to its end."""
    killed = Killed(work, plan, transport, draw, reference)
    made = 0
    while made < kills:
        made += killed.kill()
    if killed.place is not None:
        killed.finish()

    def listed(names, counts):
        return ", ".join(f"{counts[name]} {name}" for name in names)
    print(f"{plan} over {transport}: {kills} kills of {killed.runs} runs (at "
          f"{listed(MOMENTS, killed.moments)}; of {listed(TARGETS, killed.targets)}), the losses "
          "of a run without", flush=True)
