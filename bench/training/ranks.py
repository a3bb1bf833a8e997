#!/usr/bin/env python3
"""Seconds and memory of training steps on two ranks of one thread each, against PyTorch's
DDP and FSDP2 on gloo.

usage: ranks.py PARTITA [MODEL...] [--rounds N] [--steps N] [--optimizers sgd,adamw]

Run by hand, with a Python that has torch 2.13, onnx and numpy. Models: resnet18-64, resnet18 (16
pictures of 3x64x64 and 3x224x224) and gpt2 (small, 2 x 128 tokens); random weights, f32. A batch
is the same on both sides: each rank of theirs has half of it.

Ours are three bundles per model and optimizer, run by `partita run --transport mpi --threads 1`:
  auto           --mesh r=2, a plan that is searched; constants of the machine as `partita
                 compile` has them, or of --cluster
  data-parallel  --mesh dp=2 --mode data-parallel
  zero-3         data-parallel, with optimizer_parallel of level 3 for every parameter
Theirs are two processes of one thread with optimizers of fused=True, and channels_last pictures
and filters, as far as PyTorch takes them (lines say what it refuses):
  ddp    gradient_as_bucket_view=True, broadcast_buffers=False (no running moments are sent)
  fsdp2  fully_shard of each block and of the root
Ranks are bound to no core. Gloo reduces through shared memory where a wheel has that and takes it
under torchrun's variables, which are set; a line says whether segments of it were mapped (that of
torch 2.13.0+cpu has none).

Processes of all forms alternate in rounds. A figure is the median over rounds of the median step
of a round, of rank 0; the first WARM steps of a process are left out. Memory is the peak of
resident memory (RSS, which counts pages that processes share) of the larger of the two ranks.

Losses of the first CHECKED steps of each run must agree within TOLERANCE with those of one
process of PyTorch that trains the same weights on the same batch. DDP and FSDP2 normalize by the
moments of a rank's half (gloo has no SyncBatchNorm), ours by those of the whole batch. So of
ResNet ours are compared with steps on the whole batch, theirs with steps that add up the gradients
of its two halves. Of GPT-2, which has no such norm, both are compared with the same losses.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

from step import MOMENTUM, RATE, export, make, specification

MODELS = ("resnet18-64", "resnet18", "gpt2")
#: Optimizers and their rates. AdamW's first steps have the size of the rate whatever the gradient,
#: so that rounding decides the signs of small ones: at 1e-3 the third loss of ResNet-18 differs by
#: 2e-3 between two formats of PyTorch itself, at 1e-4 by 1e-4.
RATES = {"sgd": RATE, "adamw": RATE / 10}
RANKS, WARM, CHECKED, TOLERANCE = 2, 2, 3, 1e-3
DATA_PARALLEL = ["--mesh", f"dp={RANKS}", "--mode", "data-parallel"]
#: Arguments of the compile and level of optimizer_parallel, by form.
OURS = {"auto": (["--mesh", f"r={RANKS}"], 0), "data-parallel": (DATA_PARALLEL, 0),
        "zero-3": (DATA_PARALLEL, 3)}
#: Forms that each of ours is compared with.
AGAINST = {"auto": ("ddp", "fsdp2"), "data-parallel": ("ddp", "fsdp2"), "zero-3": ("fsdp2",)}
ORDER = ("auto", "ddp", "data-parallel", "fsdp2", "zero-3")


def spec_path(folder, optimizer, level):
    return os.path.join(folder, f"{optimizer}-{level}.json")


def make_optimizer(parameters, kind, **how):
    """PyTorch's, with fused=True or foreach=True."""
    import torch
    if kind == "sgd":
        return torch.optim.SGD(parameters, RATES[kind], momentum=MOMENTUM, **how)
    return torch.optim.AdamW(parameters, RATES[kind], **how)


def loss_of(module, x, labels):
    import torch
    return torch.nn.functional.cross_entropy(module(x).flatten(0, -2), labels.flatten())


def reference(name, kind, parts):
    """Losses of one process whose gradients are the mean of those of so many parts."""
    import torch
    module, x, labels = make(name)
    torch.set_num_threads(os.cpu_count())
    optimizer, losses = make_optimizer(module.parameters(), kind), []
    for _ in range(CHECKED):
        optimizer.zero_grad()
        losses.append(0.0)
        for some, its_labels in zip(x.chunk(parts), labels.chunk(parts)):
            loss = loss_of(module, some, its_labels) / parts
            loss.backward()
            losses[-1] += loss.item()
        optimizer.step()
    return losses


def prepare(name, folder, kinds):
    """Writes the model, its batch, training files, and by optimizer the losses of both sides."""
    warnings.filterwarnings("ignore")
    # The rows of a step are those of an epoch, so their order does not matter.
    export(name, folder, batches=1)
    labels, losses = make(name)[2], {}
    for kind in kinds.split(","):
        for level in sorted({level for _, level in OURS.values()}):
            spec = specification(labels, kind, RATES[kind])
            if level:
                spec["optimizer_parallel"] = {"enable": True, "threshold_kb": 0, "level": level}
            with open(spec_path(folder, kind, level), "w") as file:
                json.dump(spec, file)
        whole = reference(name, kind, 1)
        halves = reference(name, kind, RANKS) if name.startswith("resnet") else whole
        losses[kind] = {"ours": whole, "theirs": halves}
    with open(os.path.join(folder, "losses.json"), "w") as file:
        json.dump(losses, file)


def brief(error):
    return str(error).split(": ")[0].strip()[:160]


def wrap(module, form):
    """The module as a form of theirs trains it."""
    import torch
    if form == "ddp":
        return torch.nn.parallel.DistributedDataParallel(
            module, gradient_as_bucket_view=True, broadcast_buffers=False)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (RANKS,))
    for block in module.h if hasattr(module, "h") else module.layers:
        fully_shard(block, mesh=mesh)
    return fully_shard(module, mesh=mesh)


def rank_of(name, form, rank, said):
    """A rank's wrapped module, and its part of the input and of the labels."""
    import torch
    module, x, labels = make(name)
    x, labels = (tensor.chunk(RANKS)[rank].clone() for tensor in (x, labels))
    if x.dim() != 4:
        return wrap(module, form), x, labels
    x = x.contiguous(memory_format=torch.channels_last)
    try:
        return wrap(module.to(memory_format=torch.channels_last), form), x, labels
    except (NotImplementedError, RuntimeError, ValueError) as error:
        said.append(f"filters are not channels_last, which PyTorch refuses: {brief(error)}")
    return wrap(make(name)[0], form), x, labels


def step_with(optimizer, module, kind, said):
    """Steps; an optimizer that PyTorch refuses at its first step gives way to one of foreach=True,
    which is returned."""
    try:
        optimizer.step()
        return optimizer
    except (NotImplementedError, RuntimeError) as error:
        if optimizer.defaults.get("fused") is not True:
            raise
        said.append(f"foreach=True in place of fused=True, which PyTorch refuses: {brief(error)}")
    optimizer = make_optimizer(module.parameters(), kind, foreach=True)
    optimizer.step()
    return optimizer


def worker(name, kind, form, rank, store, steps):
    """Prints seconds and losses of a rank of theirs, and what PyTorch refused."""
    import torch
    import torch.distributed
    warnings.filterwarnings("ignore")
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank,
                                         world_size=RANKS)
    said, seconds, losses = [], [], []
    module, x, labels = rank_of(name, form, rank, said)
    optimizer = make_optimizer(module.parameters(), kind, fused=True)
    for _ in range(steps):
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss = loss_of(module, x, labels)
        loss.backward()
        if not seconds:
            optimizer = step_with(optimizer, module, kind, said)
        else:
            optimizer.step()
        seconds.append(time.perf_counter() - begin)
        losses.append(loss.item())
    with open("/proc/self/maps") as file:
        shared = "shm_allreduce" in file.read()
    said.append(f"gloo of torch {torch.__version__} reduces through "
                f"{'shared memory' if shared else 'sockets'}")
    torch.distributed.destroy_process_group()
    print(json.dumps({"seconds": seconds, "losses": losses, "said": said}))


def descendants(pid):
    """A process and those that it has started, directly or not; few, so that a look is cheap."""
    found = [pid]
    for parent in found:
        try:
            for task in os.listdir(f"/proc/{parent}/task"):
                with open(f"/proc/{parent}/task/{task}/children") as file:
                    found.extend(int(child) for child in file.read().split())
        except OSError:
            pass
    return found


def find_ranks(children, variable):
    """Process ids by rank, of the processes that have this variable."""
    found = {}
    for pid in (pid for child in children for pid in descendants(child.pid)):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                for word in file.read().split(b"\0"):
                    if word.startswith(variable + b"="):
                        found.setdefault(int(word.split(b"=")[1]), pid)
        except OSError:
            pass
    return found


def high_water(pid):
    """The peak of resident memory so far in MiB; 0 of a process that is over."""
    try:
        with open(f"/proc/{pid}/status") as file:
            return int(file.read().split("VmHWM:")[1].split()[0]) / 1024
    except (OSError, IndexError):
        return 0


def run_ranks(commands, variable):
    """Outputs of the commands, and the larger of the ranks' peaks in MiB.

    Ranks are the processes that have this variable. Their high water is looked at while they
    run, since those of `partita run` are children of mpirun.
    """
    ranks, peaks = {}, {}
    with tempfile.TemporaryFile("w+") as error:
        children = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=error, text=True,
                                     env=environment) for command, environment in commands]
        while any(child.poll() is None for child in children):
            if len(ranks) < RANKS:
                ranks = find_ranks(children, variable)
            for rank, pid in ranks.items():
                peaks[rank] = max(peaks.get(rank, 0), high_water(pid))
            if any(child.poll() for child in children):
                for child in children:
                    child.kill()
            time.sleep(0.1)
        outputs = [child.stdout.read() for child in children]
        if any(child.returncode for child in children):
            error.seek(0)
            raise RuntimeError(f"{commands[0][0]}: {error.read().strip()[-500:]}")
    if len(peaks) != RANKS or not min(peaks.values()):
        raise RuntimeError(f"{len(peaks)} ranks were seen in place of {RANKS}")
    return outputs, max(peaks.values())


def run_ours(arguments, bundle, folder):
    """Seconds of each step, losses, the peak, and nothing to tell."""
    log = os.path.join(folder, "log.jsonl")
    if os.path.exists(log):
        os.remove(log)
    command = [arguments.partita, "run", bundle, "--data", os.path.join(folder, "data.npz"),
               "--steps", str(arguments.steps + WARM), "--threads", "1", "--transport", "mpi",
               "--timeout", "600", "--log", log, "--json"]
    outputs, peak = run_ranks([(command, dict(os.environ, OMP_NUM_THREADS="1"))],
                              b"OMPI_COMM_WORLD_RANK")
    with open(log) as file:
        losses = [json.loads(line)["loss"] for line in file]
    return json.loads(outputs[0])["request_seconds"], losses, peak, []


def run_theirs(arguments, name, kind, form, folder):
    """Seconds of each step of rank 0, losses of the whole batch, the peak, and what is told."""
    commands = []
    with tempfile.TemporaryDirectory(dir=folder) as where:
        for rank in range(RANKS):
            environment = dict(os.environ, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo",
                               RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS),
                               LOCAL_WORLD_SIZE=str(RANKS), MASTER_ADDR="127.0.0.1",
                               MASTER_PORT=str(os.getpid()))
            commands.append(([sys.executable, os.path.abspath(__file__), "--worker", name, kind,
                              form, str(rank), os.path.join(where, "store"),
                              str(arguments.steps + WARM)], environment))
        outputs, peak = run_ranks(commands, b"LOCAL_RANK")
    ranks = [json.loads(output) for output in outputs]
    losses = [statistics.fmean(those) for those in zip(*(rank["losses"] for rank in ranks))]
    return ranks[0]["seconds"], losses, peak, ranks[0]["said"]


def check(who, losses, expected):
    for step, (loss, other) in enumerate(zip(losses[:CHECKED], expected, strict=True), 1):
        if not abs(loss - other) <= TOLERANCE * abs(other):
            raise RuntimeError(f"{who}: the loss of step {step} is {loss}, and {other} in one "
                               "process of PyTorch")


def compile_ours(arguments, folder, kind):
    """The bundle of each form."""
    bundles = {}
    for form, (where, level) in OURS.items():
        bundles[form] = os.path.join(folder, f"{kind}-{form}")
        more = ["--cluster", arguments.cluster] if arguments.cluster and form == "auto" else []
        begin = time.perf_counter()
        done = subprocess.run([arguments.partita, "compile", os.path.join(folder, "model.onnx"),
                               "-o", bundles[form], "--threads", "1", "--train",
                               spec_path(folder, kind, level), *where, *more],
                              capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{form}: {done.stderr.strip()[-500:]}")
        print(f"  compiled {form} in {time.perf_counter() - begin:.0f} s", flush=True)
    return bundles


def measure(arguments, name, kind, folder):
    """Prints a line per form."""
    with open(os.path.join(folder, "losses.json")) as file:
        expected = json.load(file)[kind]
    print(f"{name} {kind}", flush=True)
    bundles, told = compile_ours(arguments, folder, kind), []
    medians, peaks = {form: [] for form in ORDER}, dict.fromkeys(ORDER, 0)
    for _ in range(arguments.rounds):
        for form in ORDER:
            is_ours = form in OURS
            seconds, losses, peak, said = (
                run_ours(arguments, bundles[form], folder) if is_ours
                else run_theirs(arguments, name, kind, form, folder))
            check(f"{name} {kind} {form}", losses, expected["ours" if is_ours else "theirs"])
            medians[form].append(1e3 * statistics.median(seconds[WARM:]))
            peaks[form] = max(peaks[form], peak)
            told.extend(f"{form}: {line}" for line in said if f"{form}: {line}" not in told)
    for line in told:
        print(f"  {line}")
    ms = {form: statistics.median(values) for form, values in medians.items()}
    for form, others in AGAINST.items():
        line = f"{name} {kind} {form}: {ms[form]:.1f} ms, {peaks[form]:.0f} MiB"
        for other in others:
            line += (f"; {other} {ms[other]:.1f} ms, {peaks[other]:.0f} MiB: ratio "
                     f"{ms[form] / ms[other]:.2f}, of memory {peaks[form] / peaks[other]:.2f}")
        print(line, flush=True)


def main():
    if sys.argv[1:2] == ["--prepare"]:
        return prepare(*sys.argv[2:5])
    if sys.argv[1:2] == ["--worker"]:
        name, kind, form, rank, store, steps = sys.argv[2:8]
        return worker(name, kind, form, int(rank), store, int(steps))
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("partita")
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=2, help="behind the first ones")
    parser.add_argument("--optimizers", default=",".join(RATES))
    parser.add_argument("--cluster", help="constants of the machine that auto plans with")
    arguments = parser.parse_args()
    for given, known in ((arguments.models, MODELS),
                         (arguments.optimizers.split(","), tuple(RATES))):
        for name in given:
            if name not in known:
                parser.error(f"no '{name}': {', '.join(known)}")
    if arguments.steps < 1 or arguments.steps + WARM < CHECKED or arguments.rounds < 1:
        parser.error("there must be a step and a round")
    for name in arguments.models:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, os.path.abspath(__file__), "--prepare", name, folder,
                            arguments.optimizers], check=True, stdout=subprocess.DEVNULL)
            for kind in arguments.optimizers.split(","):
                measure(arguments, name, kind, folder)


if __name__ == "__main__":
    sys.exit(main())
