#!/usr/bin/env python3
"""Recompute changes what a training step needs, not what it computes.

usage: run_recompute.py PARTITA

Twelve residual blocks. With every block computed again a block keeps at most a tenth of its
activations, and at no time do the blocks have more than a quarter of what they have without.
Under memory limits the compiler chooses what is computed again: the program then needs what
the plan says, at most the limit, and losses are those of the step without, bit by bit. What
ranks receive for recompute, and gather for it, is counted.
"""
import json
import re
import subprocess
import sys
import tempfile

import run_training
from run_training import Step

LAYERS = 12
OPTIMIZER = {"kind": "adamw", "lr": 0.01}


def memory(step):
    """What the plan says; its kinds are every byte of what is allocated."""
    with open(f"{step.bundle}/plan.json") as file:
        plan = json.load(file)["entries"][0]
    m = plan["stages"][0]["memory"]
    allocated = m["arena"] + m["weights"] + m["packed"] + m["states"] + m["regions"]
    if sum(m["peak"]["kinds"].values()) != allocated or min(m["peak"]["kinds"].values()) < 0:
        raise RuntimeError(f"kinds are not what is allocated, {allocated} B: {m}")
    with open(f"{step.bundle}/bundle.json") as file:
        text = file.read()
    if not re.search(rf'"arena(_bytes)?": {m["arena"]}\b', text):
        raise RuntimeError(f"the plan's arena of {m['arena']} B is not the bundle's: {text}")
    return plan, m, m["arena"] + m["weights"] + m["states"]


def make(command, work, spec, *arguments):
    return Step(command, work, "stack", {"optimizer": OPTIMIZER, **spec}, arguments)


def alive(arena, node):
    """Most bytes of forward values of these nodes, and of their copies, at one time."""
    values = [v for v in arena["values"] if re.match(node, v["node"])]
    most = 0
    for t in range(len(arena["tasks"])):
        most = max(most, sum(v["bytes"] for v in values if v["first"] <= t <= v["last"]))
    return most


def blocks(command, work):
    """Kept bytes of a block, and what blocks have at one time."""
    def arena(spec):
        step = make(command, work, spec, "--dump-dir", f"{work}/levels")
        with open(f"{work}/levels/arena-0.json") as file:
            return step.run(4)[0], json.load(file)
    losses, plain = arena({})
    again, repeated = arena(
        {"recompute": [{"nodes": [f"h.{k}.*"]} for k in range(LAYERS)]})
    if again != losses:
        raise RuntimeError(f"losses {again}, without recompute {losses}")

    def kept(arena, k):
        return sum(v["bytes"] for v in arena["values"] if v["kind"] == "activations"
                   and re.match(rf"h\.{k}\.", v["node"]))
    middle = LAYERS // 2
    share = kept(repeated, middle) / kept(plain, middle)
    forward = r"h\.\d+\.[a-z]+(/recompute)?$"
    peak = alive(repeated, forward) / alive(plain, forward)
    print(f"every block again: a block keeps {share:.3f} of its activations, {LAYERS} blocks "
          f"have {peak:.3f} of what they have without, arena {repeated['arena']} B instead of "
          f"{plain['arena']} B; losses equal", flush=True)
    if share > 0.1 or peak > 0.25:
        raise RuntimeError("recompute keeps too much")
    return losses


def limits(command, work, losses):
    plain, m, needed = memory(make(command, work, {}))
    seconds = 0
    for share in (0.9, 0.6, 0.4, 0.25):
        limit = needed - int((1 - share) * m["arena"])
        step = make(command, work, {}, "--memory", str(limit))
        plan, _, now = memory(step)
        chosen = plan["recompute"]
        if now > limit or step.run(4)[0] != losses:
            raise RuntimeError(f"{now} B of {limit}, losses {step.run(4)[0]}")
        if chosen["seconds"] < seconds or chosen["saved_bytes"] != needed - now:
            raise RuntimeError(f"{limit} B: {chosen}, a larger limit took {seconds} s")
        seconds = chosen["seconds"]
        nodes = sum(len(stretch) for stretch in chosen["nodes"])
        print(f"limit {limit} B ({share} of the arena): needs {now} B, {nodes} nodes again, "
              f"{1e6 * seconds:.1f} µs more; losses equal", flush=True)
    report = subprocess.run([command, "report", step.bundle], capture_output=True, text=True)
    kinds = memory(step)[1]["peak"]["kinds"]
    if f"of these {sum(kinds.values())} B last" not in report.stdout or \
            f"{kinds['activations']} B" not in report.stdout:
        raise RuntimeError(f"the report does not say what memory holds: {report.stdout}")
    # The plan says it all.
    subprocess.run(["cp", f"{step.bundle}/plan.json", f"{work}/plan.json"], check=True)
    step = make(command, work, {}, "--plan", f"{work}/plan.json")
    if memory(step)[2] != now or step.run(4)[0] != losses:
        raise RuntimeError("the plan followed is another program")
    # Micro-batches, whose loop has the backward pass in its body.
    step = make(command, work, {"accumulation": 2})
    expected, before = step.run(3)[0], memory(step)[2]
    step = make(command, work, {"accumulation": 2}, "--memory", str(before - m["arena"] // 2))
    if step.run(3)[0] != expected or memory(step)[2] > before - m["arena"] // 2:
        raise RuntimeError("accumulation with recompute is not what it is without")
    return needed, m


def refusals(command, work, needed, m):
    def error(spec, limit):
        try:
            make(command, work, spec, "--memory", str(limit))
        except RuntimeError as failure:
            return str(failure)
        raise RuntimeError(f"{spec} fits into {limit} B")
    text = error({"recompute": "none"}, needed - 1)
    if f"the program needs {needed} bytes" not in text:
        raise RuntimeError(text)
    # Weights and states alone: sums over the program say it before anything is compiled.
    text = error({}, needed - m["arena"])
    if "no plan fits: whatever is chosen, the device" not in text:
        raise RuntimeError(text)
    text = error({}, needed - m["arena"] * 9 // 10)
    if f"{needed} without" not in text or "of optimizer" not in text:
        raise RuntimeError(text)
    would = int(re.search(r"a memory of (\d+) bytes would do", text)[1])
    if memory(make(command, work, {}, "--memory", str(would)))[2] > would:
        raise RuntimeError(f"{would} B do not do")
    print(f"refused: \"none\"; a limit below {would} B, which is said to do and does")


def communication(command, work):
    """Two blocks together: the reduction between them is repeated, or kept.

    Kept, it is one of the activations; the blocks are then computed again one at a time, so
    that the arena may be the smaller one.
    """
    found = {}
    columns, rows = {"in": [[[], []], [[], "tp"]]}, {"in": [[[], "tp"], ["tp", []]]}
    for knob in (None, True, False):
        hints = {"h.*.up": columns, "h.*.down": rows}
        if knob is not None: # the products that the backward pass computes again
            hints.update({"h.*.up/recompute": columns, "h.*.down/recompute": rows})
        with open(f"{work}/hints.json", "w") as file:
            json.dump({"nodes": hints}, file)
        pairs = [{"nodes": [f"h.{k}.*", f"h.{k + 1}.*"], "mp_comm_recompute": knob}
                 for k in range(0, LAYERS, 2)]
        step = make(command, work, {} if knob is None else {"recompute": pairs}, "--mesh",
                    "tp=2", "--hints", f"{work}/hints.json")
        plan, m, _ = memory(step)
        nodes = [n for c in plan["stages"][0]["collectives"] for n in c["nodes"]]
        again = [n for n in nodes if n.endswith("/recompute")]
        found[knob] = (len(nodes), len(again), m["arena"], step.run(3)[0],
                       m["peak"]["kinds"]["activations"])
    print("reductions of two ranks (all, of them again), arena, activations: " + ", ".join(
        f"{'without' if k is None else k}: {v[0]}, {v[1]}, {v[2]} B, {v[4]} B"
        for k, v in found.items()))
    if found[True][:2] != (found[None][0] + LAYERS // 2, LAYERS // 2) or \
            found[False][:2] != (found[None][0], 0) or \
            max(found[True][2], found[False][2]) >= found[None][2] or \
            not found[True][4] < found[False][4] < found[None][4] or \
            len({tuple(v[3]) for v in found.values()}) != 1:
        raise RuntimeError(f"mp_comm_recompute: {found}")


def gathering(command, work):
    """Weights in parts: recompute gathers them no more often, unless it is asked to.

    Each collective is a call of its own, since buckets of gradients in flight are the peak of
    so small a step.
    """
    found = {}
    for knob in (None, False, True):
        each = [{"nodes": [f"h.{k}.*"], "parallel_optimizer_comm_recompute": knob}
                for k in range(LAYERS)]
        spec = {"optimizer_parallel": {"enable": True, "level": 3, "threshold_kb": 0},
                "comm_fusion": {"openstate": False},
                **({} if knob is None else {"recompute": each})}
        step = make(command, work, spec, "--mesh", "dp=4", "--mode", "data-parallel")
        plan, m, _ = memory(step)
        gathers = sum(len(c["nodes"]) for c in plan["stages"][0]["collectives"]
                      if c["op"] == "all_gather")
        found[knob] = gathers, m["arena"], step.run(3)[0]
    print("gathered weights of four ranks, arena: " + ", ".join(
        f"{'without' if k is None else k}: {v[0]}, {v[1]} B" for k, v in found.items()))
    if found[False][0] != found[None][0] or found[True][0] <= found[None][0] or \
            not found[True][1] <= found[False][1] < found[None][1] or \
            len({tuple(v[2]) for v in found.values()}) != 1:
        raise RuntimeError(f"parallel_optimizer_comm_recompute: {found}")


def ranks(command, work):
    """A search under a limit that only a step with recompute meets."""
    step = make(command, work, {}, "--mesh", "dp=2")
    losses, (_, m, needed) = step.run(4)[0], memory(step)
    limit = needed - int(0.6 * m["arena"])
    step = make(command, work, {}, "--mesh", "dp=2", "--memory", str(limit))
    plan, _, now = memory(step)
    actual = step.run(4)[0]
    worst = max(abs(a - e) / abs(e) for a, e in zip(actual, losses))
    c = plan["certificate"]
    print(f"two ranks, {limit} B: needs {now} B, gap {c['gap']:.3f} to any step, "
          f"{'with' if 'recompute' in plan else 'without'} recompute; losses within "
          f"{worst:.1e}")
    if now > limit or worst > 1e-4 or c["memory_limit"] != limit or \
            c["lower_bound_seconds"] > c["step_seconds"]:
        raise RuntimeError(f"two ranks: {c}")
    # What follows the plan of a step computes the same again.
    done = subprocess.run([command, "verify", step.bundle], capture_output=True, text=True)
    if done.returncode or "checked: equal" not in done.stdout:
        raise RuntimeError(f"verify: {done.stderr}")
    # With parts of what micro-batches add up: its bodies are planned twice.
    accumulated = {"accumulation": 2,
                   "optimizer_parallel": {"enable": True, "level": 2, "threshold_kb": 0}}
    step = make(command, work, accumulated, "--mesh", "dp=2")
    losses, (_, m, needed) = step.run(3)[0], memory(step)
    limit = needed - m["arena"] // 3
    step = make(command, work, accumulated, "--mesh", "dp=2", "--memory", str(limit))
    worst = max(abs(a - e) / abs(e) for a, e in zip(step.run(3)[0], losses))
    if memory(step)[2] > limit or worst > 1e-4:
        raise RuntimeError(f"with accumulation: needs {memory(step)[2]} of {limit} B, "
                           f"losses within {worst:.1e}")


def main():
    command = sys.argv[1]
    with tempfile.TemporaryDirectory() as work:
        losses = blocks(command, work)
        needed, m = limits(command, work, losses)
        refusals(command, work, needed, m)
        communication(command, work)
        gathering(command, work)
        ranks(command, work)


if __name__ == "__main__":
    main()
