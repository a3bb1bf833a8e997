#!/usr/bin/env python3
"""Prints a pipelined training step as a module of level L4, and the same step as one
function, @reference.

usage: make_pipeline.py KIND TP,TP,… [CHUNKS]
  KIND     gpipe, 1f1b, interleaved or zero-bubble
  TP       ranks of each program (1 or 2); stage s is on program s mod their number
  CHUNKS   stages of each program (1)

A stage computes h = tanh(x·w). Backward d = g·h and then d·wᵀ; the weight's
gradient is the sum of xᵀ·d over the micro-batches; the update is w − sum/8. Schedules say
only in which order segments run: --partita-complete-schedules adds the rest.
"""
import sys

B, D, M = 2, 8, 8  # rows of a micro-batch, width, micro-batches


def rule(text):
    return f"#dist.rule<\"{text}\">"


MATMUL = rule("m k, k n -> m n {m=2, k=8 sum, n=8} linear sum(0), sum(1)")
BACK = rule("m n, k n -> m k {m=2, n=8 sum, k=8} linear sum(0), sum(1)")
OUTER = rule("m k, m n -> k n {m=2 sum, k=8, n=8} linear sum(0), sum(1)")
SQUARE = rule("a b, a b -> a b {a=2, b=8} linear sum(0), sum(1), prod(0, 1)")
TANH = rule("a b -> a b {a=2, b=8} linear max(0), min(0)")
ADD = rule("a b, a b -> a b {a=8, b=8} linear sum(0, 1), max(0), max(1), min(0), min(1)")
SCALE = rule("a b,  -> a b {a=8, b=8} linear sum(0), sum(1), prod(0, 1)")
SUB = rule("a b, a b -> a b {a=8, b=8} linear sum(0, 1), max(0), min(0)")


def short(layout):
    """As an op with a place for a layout prints it."""
    return layout[len("#dist.layout"):]


class Stage:
    """The text of one stage's buffers, functions and segments."""

    def __init__(self, number, stages, tp, slots):
        self.n, self.stages, self.tp, self.slots = number, stages, tp, slots
        axes = ": tp" if tp > 1 else ""
        self.mesh = f"#mesh{tp}"
        self.rep = f"#dist.layout<{self.mesh}, [{{{B}}}, {{{D}}}]>"
        self.col = f"#dist.layout<{self.mesh}, [{{{B}}}, {{{D}{axes}}}]>"
        self.weight = f"#dist.layout<{self.mesh}, [{{{D}{axes}}}, {{{D}}}]>"
        self.full = f"tensor<{B}x{D}xf32>"
        self.part = f"tensor<{B}x{D // tp}xf32>"
        self.own = f"tensor<{D // tp}x{D}xf32>"

    def by(self, loop, rule_text):
        split = f"{{{loop}: tp}}" if self.tp > 1 and loop else "{}"
        return f"dist.rule = {rule_text}, dist.strategy = #dist.strategy<{self.mesh}, {split}>"

    def buffers(self):
        n, last = self.n, self.n == self.stages - 1
        bound = {"in": f' slots {M} input "x"' if n == 0 else "",
                 "out": f' slots {M} output "y"' if last else "",
                 "gradOut": f' slots {M} input "labels"' if last else ""}
        lines = []
        for name, layout, kind in [("in", self.col, self.part), ("z", self.rep, self.full),
                                   ("out", self.rep, self.full),
                                   ("gradOut", self.rep, self.full),
                                   ("d", self.rep, self.full), ("gradIn", self.col, self.part)]:
            more = bound.get(name) or f" slots {self.slots[name]}"
            lines.append(f"task.buffer @{name}{n}{more} in {short(layout)} : {kind}")
        lines.append(f"task.buffer @sum{n} in {short(self.weight)} : {self.own}")
        lines.append(f'task.buffer @new{n} output "new{n}" in {short(self.weight)} : {self.own}')
        return lines

    def function(self, name, arguments, results, body):
        given = ", ".join(f"%{a}: {t} {{dist.layout = {l}}}" for a, t, l in arguments)
        types = ", ".join(f"{t} {{dist.layout = {l}}}" for _, t, l in results)
        back = ", ".join(f"%{r}" for r, _, _ in results)
        kinds = ", ".join(t for _, t, _ in results)
        return [f"func.func @f_{name}{self.n}({given}) -> ({types}) {{",
                *["  " + line for line in body], f"  return {back} : {kinds}", "}"]

    def reduced(self):
        """The product over a split loop, reduced while it is in flight."""
        if self.tp == 1:
            return ["%z = graph.contract %x, %w {" + self.by("k", MATMUL) +
                    f', equation = #graph.equation<"m k, k n -> m n">}} : ({self.part}, {self.own}) -> {self.full}']
        handle = f"!task.handle<{self.full}>"
        lines = ["%p = graph.contract %x, %w {" + self.by("k", MATMUL) +
                 f', equation = #graph.equation<"m k, k n -> m n">}} : ({self.part}, {self.own}) -> {self.full}']
        partial = short(self.rep)[:-1] + " partial sum {tp}>"
        lines += [f"%h = task.start : {handle} {{",
                  f"  %r = comm.all_reduce %p from {partial} to {short(self.rep)}"
                  f" : ({self.full}) -> {self.full}",
                  f"  task.yield %r : {self.full}", "}",
                  f"%z = task.wait %h : {handle} -> {self.full}"]
        return lines

    def load(self):
        return (f'%w = graph.weight "w{self.n}" {{dist.layout = {self.weight}}} : {self.own}')

    def functions(self):
        full, part, own = self.full, self.part, self.own
        square = self.by("", SQUARE)
        lines = self.function("zero", [], [("c", own, self.weight)], [
            f"%c = graph.constant {{dist.layout = {self.weight}}} dense<0.0> : {own}"])
        lines += self.function(
            "forward", [("x", part, self.col)],
            [("s", full, self.rep), ("s", full, self.rep)],
            [self.load(), *self.reduced(),
             f"%s = graph.tanh %z {{{self.by('', TANH)}}} : ({full}) -> {full}"])
        lines += self.function(
            "backward", [("z", full, self.rep), ("g", full, self.rep)],
            [("d", full, self.rep), ("i", part, self.col)],
            [self.load(), f"%d = graph.mul %g, %z {{{square}}} : ({full}, {full}) -> {full}",
             "%i = graph.contract %d, %w {" + self.by("k", BACK) +
             f', equation = #graph.equation<"m n, k n -> m k">}} : ({full}, {own}) -> {part}'])
        lines += self.function(
            "weights", [("x", part, self.col), ("d", full, self.rep), ("s", own, self.weight)],
            [("t", own, self.weight)],
            ["%p = graph.contract %x, %d {" + self.by("k", OUTER) +
             f', equation = #graph.equation<"m k, m n -> k n">}} : ({part}, {full}) -> {own}',
             f"%t = graph.add %s, %p {{{self.by('a', ADD)}}} : ({own}, {own}) -> {own}"])
        return lines + self.function(
            "update", [("s", own, self.weight)], [("t", own, self.weight)],
            [self.load(),
             f"%l = graph.constant {{dist.layout = #dist.layout<{self.mesh}, []>}} "
             "dense<1.250000e-01> : tensor<f32>",
             f"%p = graph.mul %s, %l {{{self.by('a', SCALE)}}} : ({own}, tensor<f32>) -> {own}",
             f"%t = graph.sub %w, %p {{{self.by('a', SUB)}}} : ({own}, {own}) -> {own}"])

    def segments(self):
        ends = [("zero once", "zero", [], ["sum"]), ("forward", "forward", ["in"], ["z", "out"]),
                ("backward", "backward", ["z", "gradOut"], ["d", "gradIn"]),
                ("weights", "weights", ["in", "d", "sum"], ["sum"]),
                ("update once", "update", ["sum"], ["new"])]

        def names(values):
            return "[" + ", ".join(f"@{v}{self.n}" for v in values) + "]"
        return [f"task.segment @{head.split()[0]}{self.n}{' once' if 'once' in head else ''} "
                f"calls @f_{name}{self.n} from {names(reads)} to {names(writes)}"
                for head, name, reads, writes in ends]


def order(kind, p, programs, chunks):
    """[(part, chunk, micro-batch)] of program p."""
    total = M * chunks

    def forward(k):
        if chunks == 1:
            return "forward", 0, k
        return ("forward", k // programs % chunks,
                k // (programs * chunks) * programs + k % programs)

    def backward(k):
        _, chunk, m = forward(k)
        return "backward", chunks - 1 - chunk, m
    warm = {"gpipe": total,
            "interleaved": (programs - p - 1) * 2 + (chunks - 1) * programs}.get(
                kind, programs - 1 - p)
    warm, late = min(warm, total), p if kind == "zero-bubble" else 0
    steps, owed = [("zero", c, 0) for c in range(chunks)], []
    steps += [forward(k) for k in range(warm)]
    for k in range(total):
        if warm + k < total:
            steps.append(forward(warm + k))
        steps.append(backward(k))
        owed.append(("weights", *steps[-1][1:]))
        while len(owed) > late:
            steps.append(owed.pop(0))
    return steps + owed + [("update", c, 0) for c in range(chunks)]


def slots_of(steps, chunk):
    """Micro-batches that are alive at once; one more where a transfer fills or empties."""
    when = {(part, m): i for i, (part, c, m) in enumerate(steps) if c == chunk}

    def alive(first, last):
        return max(sum(when[first, a] <= when[first, m] <= when[last, a] for a in range(M))
                   for m in range(M))
    return {"in": min(M, alive("forward", "weights") + 1), "z": alive("forward", "backward"),
            "out": 2, "gradOut": 2, "d": alive("backward", "weights"), "gradIn": 2}


def program(kind, p, tps, chunks):
    programs, tp = len(tps), tps[p]
    steps = order(kind, p, programs, chunks)
    stages = [Stage(c * programs + p, programs * chunks, tp, slots_of(steps, c))
              for c in range(chunks)]
    first = sum(tps[:p])
    lines = [f"task.program @p{p} ranks {list(range(first, first + tp))} "
             f"attributes {{dist.mesh = #mesh{tp}}} {{"]
    for stage in stages:
        for line in stage.buffers() + stage.functions() + stage.segments():
            lines.append("  " + line)
    lines.append("  task.schedule {")
    lines += [f"    task.run @{part}{c * programs + p} {m}" for part, c, m in steps]
    return lines + ["  }", "}"]


def reference(stages):
    batch, wide, square = f"tensor<{M}x{B}x{D}xf32>", f"tensor<{M * B}x{D}xf32>", f"tensor<{D}x{D}xf32>"
    news = ", ".join(f'{square} {{graph.name = "new{s}"}}' for s in range(stages))
    lines = [f'func.func @reference(%x: {batch} {{graph.name = "x"}}, %labels: {batch} '
             f'{{graph.name = "labels"}}) -> ({batch} {{graph.name = "y"}}, {news}) {{',
             f"  %h0 = graph.reshape %x : ({batch}) -> {wide}",
             f"  %g{stages} = graph.reshape %labels : ({batch}) -> {wide}",
             "  %l = graph.constant dense<1.250000e-01> : tensor<f32>"]
    for s in range(stages):
        lines += [f'  %w{s} = graph.weight "w{s}" : {square}',
                  f'  %z{s} = graph.contract %h{s}, %w{s} {{equation = #graph.equation<"m k, k n -> m n">}} '
                  f": ({wide}, {square}) -> {wide}",
                  f"  %h{s + 1} = graph.tanh %z{s} : ({wide}) -> {wide}"]
    for s in reversed(range(stages)):
        lines += [f"  %d{s} = graph.mul %g{s + 1}, %h{s + 1} : ({wide}, {wide}) -> {wide}",
                  f'  %g{s} = graph.contract %d{s}, %w{s} {{equation = #graph.equation<"m n, k n -> m k">}} '
                  f": ({wide}, {square}) -> {wide}",
                  f'  %s{s} = graph.contract %h{s}, %d{s} {{equation = #graph.equation<"m k, m n -> k n">}} '
                  f": ({wide}, {wide}) -> {square}",
                  f"  %p{s} = graph.mul %s{s}, %l : ({square}, tensor<f32>) -> {square}",
                  f"  %n{s} = graph.sub %w{s}, %p{s} : ({square}, {square}) -> {square}"]
    results = ", ".join(["%y"] + [f"%n{s}" for s in range(stages)])
    types = ", ".join([batch] + [square] * stages)
    return lines + [f"  %y = graph.reshape %h{stages} : ({wide}) -> {batch}",
                    f"  return {results} : {types}", "}"]


def main(kind, ranks, chunks="1"):
    tps, chunks = [int(tp) for tp in ranks.split(",")], int(chunks)
    stages = len(tps) * chunks
    lines = ["#mesh1 = #dist.mesh<>", "#mesh2 = #dist.mesh<tp=2>",
             f"module attributes {{task.micro_batches = {M} : i64}} {{"]
    for p in range(len(tps)):
        lines += ["  " + line for line in program(kind, p, tps, chunks)]
    for s in range(stages - 1):
        a, b = f"@p{s % len(tps)}", f"@p{(s + 1) % len(tps)}"
        lines += [f"  task.transfer @act{s} from {a}::@out{s} to {b}::@in{s + 1}",
                  f"  task.transfer @grad{s} from {b}::@gradIn{s + 1} to {a}::@gradOut{s}"]
    lines += ["  " + line for line in reference(stages)] + ["}"]
    print("\n".join(lines))


if __name__ == "__main__":
    main(*sys.argv[1:])
