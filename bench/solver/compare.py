#!/usr/bin/env python3
"""Compares partita-solve with CP-SAT and HiGHS on generated mid-size problems.

    pip install ortools highspy
    bench/solver/compare.py build/dev/bin/partita-solve --count 200 -o results.tsv

Problems have 50 to 300 variables, treewidth up to 8 and binding memory. A line per
problem: seconds and cost of each solver, and whether it proved its cost. Where another
solver proves its optimum, ours must be equal; our bound must never exceed any cost.
"""
import argparse
import json
import multiprocessing
import random
import statistics
import subprocess
import sys
import tempfile
import time

FORBIDDEN = 10**18


def generate(seed):
    """A partial k-tree over time-ordered variables, memory limit between the least peak
    that a random descent finds and the peak of the cheapest choices."""
    rng = random.Random(seed)
    count = rng.randint(50, 300)
    width = rng.randint(1, 8)
    sizes = [rng.randint(2, 6) for _ in range(count)]
    scale = rng.choice([10, 1000, 10**6])
    costs = [[rng.randint(0, scale) for _ in range(k)] for k in sizes]
    intervals, usages = [], []
    for v, k in enumerate(sizes):
        length = rng.choice([0, rng.randint(1, 10), rng.randint(1, 40)])
        intervals.append([v, v + length])
        base = rng.randint(1, 1000)
        # Cheap choices use more: what makes memory bind.
        order = sorted(range(k), key=lambda s: costs[v][s])
        use = [0] * k
        for rank, s in enumerate(order):
            use[s] = max(1, base * (k - rank) // k + rng.randint(-base // 10, base // 10))
        usages.append(use)
    bags, edges = [list(range(min(width, count)))], set()
    for a in range(min(width, count)):
        for b in range(a):
            if rng.random() < 0.7:
                edges.add((b, a))
    for v in range(width, count):
        recent = bags[-1] if rng.random() < 0.8 else rng.choice(bags)
        for u in recent:
            if rng.random() < 0.6:
                edges.add((u, v))
        bags.append((recent + [v])[-width:] if width else [v])
    tables = []
    for u, v in sorted(edges):
        rate = rng.choice([0, 0, 0.1])
        if rng.random() < 0.2 and sizes[u] == sizes[v]:
            table = [0 if s == t else rng.randint(0, scale)
                     for s in range(sizes[u]) for t in range(sizes[v])]
        else:
            table = [rng.randint(0, scale) for _ in range(sizes[u] * sizes[v])]
        table = [FORBIDDEN if rng.random() < rate and i % (sizes[v] + 1) else c
                 for i, c in enumerate(table)]
        tables.append(table)
    horizon = max(end for _, end in intervals)

    def peak(pick):
        return max(sum(pick(v) for v in range(count)
                       if intervals[v][0] <= t < intervals[v][1]) for t in range(horizon))

    low = peak(lambda v: min(usages[v]))
    high = peak(lambda v: usages[v][min(range(sizes[v]), key=lambda s: costs[v][s])])
    limit = max(1, low + (max(high, low + 1) - low) * rng.randint(15, 70) // 100)
    return {"problem": {
        "name": f"mid-{seed}",
        "nodes": {"intervals": intervals, "costs": costs, "usages": usages},
        "edges": {"nodes": [list(e) for e in sorted(edges)], "costs": tables},
        "usage_limit": limit}}


def rows_of(problem):
    """The variables alive at each time step that is not contained in another one."""
    intervals = problem["nodes"]["intervals"]
    rows = set()
    for t in sorted({b for b, e in intervals if b < e}):
        rows.add(frozenset(v for v, (b, e) in enumerate(intervals) if b <= t < e))
    return [r for r in rows if not any(r < other for other in rows)]


def cp_sat(problem, seconds, threads):
    from ortools.sat.python import cp_model
    model = cp_model.CpModel()
    nodes, edges = problem["nodes"], problem["edges"]
    x = [[model.NewBoolVar("") for _ in c] for c in nodes["costs"]]
    objective = []
    for v, choices in enumerate(x):
        model.AddExactlyOne(choices)
        objective += [c * b for c, b in zip(nodes["costs"][v], choices)]
    for (u, v), table in zip(edges["nodes"], edges["costs"]):
        k = len(x[v])
        y = [model.NewBoolVar("") if c < FORBIDDEN else None for c in table]
        for s in range(len(x[u])):
            model.Add(sum(b for b in y[s * k:(s + 1) * k] if b is not None) == x[u][s])
        for t in range(k):
            model.Add(sum(b for b in y[t::k] if b is not None) == x[v][t])
        objective += [c * b for c, b in zip(table, y) if b is not None]
    for row in rows_of(problem):
        model.Add(sum(u * b for v in row for u, b in zip(nodes["usages"][v], x[v]))
                  <= problem["usage_limit"])
    model.Minimize(sum(objective))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = threads
    begin = time.time()
    status = solver.Solve(model)
    took = time.time() - begin
    if status == cp_model.INFEASIBLE:
        return took, None, True
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return took, round(solver.ObjectiveValue()), status == cp_model.OPTIMAL
    return took, None, False


def highs(problem, seconds, threads):
    import highspy
    import numpy as np
    h = highspy.Highs()
    h.setOptionValue("output_flag", False)
    h.setOptionValue("time_limit", float(seconds))
    h.setOptionValue("threads", threads)
    h.setOptionValue("mip_rel_gap", 0.0)
    nodes, edges = problem["nodes"], problem["edges"]
    cost, start = [], []
    for c in nodes["costs"]:
        start.append(len(cost))
        cost += c
    binary = len(cost)
    rows = []  # (low, high, [(column, value)])
    for v, c in enumerate(nodes["costs"]):
        rows.append((1, 1, [(start[v] + s, 1) for s in range(len(c))]))
    for (u, v), table in zip(edges["nodes"], edges["costs"]):
        k, columns = len(nodes["costs"][v]), {}
        for i, c in enumerate(table):
            if c < FORBIDDEN:
                columns[i] = len(cost)
                cost.append(c)
        for s in range(len(nodes["costs"][u])):
            rows.append((0, 0, [(columns[i], 1) for i in range(s * k, (s + 1) * k)
                                if i in columns] + [(start[u] + s, -1)]))
        for t in range(k):
            rows.append((0, 0, [(columns[i], 1) for i in range(t, len(table), k)
                                if i in columns] + [(start[v] + t, -1)]))
    for row in rows_of(problem):
        rows.append((-highspy.kHighsInf, problem["usage_limit"],
                     [(start[v] + s, u) for v in row
                      for s, u in enumerate(nodes["usages"][v])]))
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(cost), len(rows)
    lp.col_cost_ = np.array(cost, dtype=float)
    lp.col_lower_, lp.col_upper_ = np.zeros(len(cost)), np.ones(len(cost))
    lp.row_lower_ = np.array([r[0] for r in rows], dtype=float)
    lp.row_upper_ = np.array([r[1] for r in rows], dtype=float)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.cumsum([0] + [len(r[2]) for r in rows])
    lp.a_matrix_.index_ = np.array([c for r in rows for c, _ in r[2]])
    lp.a_matrix_.value_ = np.array([a for r in rows for _, a in r[2]], dtype=float)
    lp.integrality_ = [highspy.HighsVarType.kInteger] * binary + \
        [highspy.HighsVarType.kContinuous] * (len(cost) - binary)
    h.passModel(lp)
    begin = time.time()
    h.run()
    took = time.time() - begin
    status = h.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        return took, None, True
    info = h.getInfo()
    value = info.objective_function_value
    if info.primal_solution_status != 2:
        return took, None, False
    return took, round(value), status == highspy.HighsModelStatus.kOptimal


def apart(solver, *arguments):
    """Runs a solver in a process of its own: the two packages carry clashing symbols."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(solver, arguments)


def ours(binary, path, seconds, threads):
    begin = time.time()
    run = subprocess.run([binary, path, "--time-limit", str(seconds), "--threads",
                          str(threads)], capture_output=True, text=True)
    took = time.time() - begin
    if run.returncode != 0:
        return took, None, "infeasible" in run.stderr, 0
    answer = json.loads(run.stdout)
    return took, answer["cost"], answer["proved"], answer["lower_bound"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only-ours", action="store_true")
    parser.add_argument("--solvers", default="cp-sat,highs")
    parser.add_argument("-o", "--output")
    options = parser.parse_args()
    others = {"cp-sat": cp_sat, "highs": highs}
    chosen = [] if options.only_ours else options.solvers.split(",")
    lines, wrong, ratios, unproved, slower = [], 0, [], 0, 0
    for seed in range(options.first, options.first + options.count):
        data = generate(seed)
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(data, file)
            file.flush()
            mine = ours(options.binary, file.name, options.seconds, options.threads)
        results = {n: apart(others[n], data["problem"], options.seconds, options.threads)
                   for n in chosen}
        unproved += not mine[2]
        proved = [r for r in results.values() if r[2]]
        bad = any(r[1] != mine[1] for r in proved) or \
            any(r[1] is not None and mine[3] > r[1] for r in results.values())
        wrong += bad
        if proved:
            ratios.append(mine[0] / min(r[0] for r in proved))
        line = [str(seed), str(len(data["problem"]["nodes"]["costs"])), f"{mine[0]:.3f}",
                str(mine[1]), str(mine[2])]
        for n in chosen:
            line += [n, f"{results[n][0]:.3f}", str(results[n][1]), str(results[n][2])]
        lines.append("\t".join(line) + ("\tWRONG" if bad else ""))
        print(lines[-1], flush=True)
    summary = f"{len(lines)} problems, {wrong} wrong, {unproved} not proved by partita-solve"
    if ratios:
        summary += (f", {len(ratios)} proved by another; our time over the faster one's: "
                    f"median {statistics.median(ratios):.3f}, max {max(ratios):.2f}")
    print(summary)
    if options.output:
        with open(options.output, "w") as file:
            file.write("\n".join(lines + [summary]) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
