#!/usr/bin/env python3
"""Compares partita-solve with CP-SAT and HiGHS on generated mid-size problems.

    pip install ortools highspy
    bench/solver/compare.py --binary build/dev/bin/partita-solve --count 200 -o r.csv
    bench/solver/compare.py --summary -o r.csv

Problems have 50 to 300 variables, treewidth up to 8 and binding memory. The CSV file gets
one line per problem and solver as soon as it is there; what it holds already is not run
again, so a run can be stopped and continued, and solvers can be run one at a time. Seconds
are those of the process's CPU beside those of the clock: on a machine that others use, only
the former compare. Where another solver proves its optimum, ours must be equal; our bound
must never exceed any cost.

The solvers take a problem in the order in which they are named, and one that comes after
another solver has proved its optimum gets no more CPU than that one took: later, its proof
would neither be the faster one nor say anything new.
"""
import argparse
import concurrent.futures
import csv
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
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
    solver.parameters.num_workers = threads
    took = Clock()
    took.stop_after(seconds, solver.StopSearch)
    status = solver.Solve(model)
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    return took.result(round(solver.ObjectiveValue()) if found else None,
                       solver.BestObjectiveBound(),
                       status in (cp_model.OPTIMAL, cp_model.INFEASIBLE))


def highs(problem, seconds, threads):
    import highspy
    import numpy as np
    h = highspy.Highs()
    h.setOptionValue("output_flag", False)
    # Lets another thread cancel.
    h.HandleUserInterrupt = True
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
    took = Clock()
    took.stop_after(seconds, h.cancelSolve)
    h.solve()
    status, info = h.getModelStatus(), h.getInfo()
    found = info.primal_solution_status == 2
    return took.result(round(info.objective_function_value) if found else None,
                       info.mip_dual_bound,
                       status in (highspy.HighsModelStatus.kOptimal,
                                  highspy.HighsModelStatus.kInfeasible))


def ours(binary, problem, seconds, threads):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"problem": problem}, file)
        file.flush()
        begin, before = time.time(), resource.getrusage(resource.RUSAGE_CHILDREN)
        run = subprocess.run([binary, file.name, "--time-limit", str(seconds),
                              "--threads", str(threads)], capture_output=True, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = {"wall": time.time() - begin, "cpu": after.ru_utime + after.ru_stime
              - before.ru_utime - before.ru_stime, "cost": "", "bound": 0}
    if run.returncode != 0:
        return result | {"proved": "infeasible" in run.stderr}
    answer = json.loads(run.stdout)
    return result | {"cost": answer["cost"], "bound": answer["lower_bound"],
                     "proved": answer["proved"]}


class Clock:
    """Seconds of the clock and of this process since it was made."""

    def __init__(self):
        self.wall, self.cpu = time.time(), time.process_time()

    def stop_after(self, seconds, stop):
        """Calls `stop` once this process has used so many seconds of its CPU."""
        def watch():
            while time.process_time() - self.cpu < seconds:
                time.sleep(0.2)
            stop()
        threading.Thread(target=watch, daemon=True).start()

    def result(self, cost, bound, proved):
        return {"wall": time.time() - self.wall, "cpu": time.process_time() - self.cpu,
                "cost": "" if cost is None else cost, "bound": bound, "proved": proved}


FIELDS = ["seed", "variables", "solver", "threads", "limit", "wall", "cpu", "cost", "bound",
          "proved"]


def one(seed, solver, seconds, options):
    """A line of the table, in a process of its own: the packages' symbols clash."""
    problem = generate(seed)["problem"]
    if solver == "partita":
        result = ours(options.binary, problem, seconds, options.threads)
    else:
        result = {"cp-sat": cp_sat, "highs": highs}[solver](problem, seconds,
                                                           options.threads)
    result["wall"], result["cpu"] = f"{result['wall']:.3f}", f"{result['cpu']:.3f}"
    return {"seed": seed, "variables": len(problem["nodes"]["costs"]), "solver": solver,
            "threads": options.threads, "limit": f"{seconds:g}", **result}


def run(seed, solvers, known, options):
    """Yields the lines of one problem that are not in `known`."""
    for solver in solvers:
        if (seed, solver) in known:
            continue
        proofs = [float(r["cpu"]) for (s, other), r in known.items()
                  if s == seed and other not in ("partita", solver)
                  and str(r["proved"]) == "True"]
        seconds = options.seconds if solver == "partita" else \
            min([options.seconds] + [max(p, 1) for p in proofs])
        with concurrent.futures.ProcessPoolExecutor(1) as process:
            row = process.submit(one, seed, solver, seconds, options).result()
        known[seed, solver] = row
        yield row


def load(path):
    if not os.path.exists(path):
        return []
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def summary(rows):
    """Text of what the lines say together, and whether any contradict each other."""
    by_seed = {}
    for row in rows:
        by_seed.setdefault(int(row["seed"]), {})[row["solver"]] = row
    solvers = sorted({row["solver"] for row in rows})
    proved = {s: 0 for s in solvers}
    run = {s: 0 for s in solvers}
    best, ratios, wrong, beaten, open_ = {s: 0 for s in solvers}, [], [], [], []
    for seed, group in sorted(by_seed.items()):
        costs = [int(r["cost"]) for r in group.values() if r["cost"]]
        for s, r in group.items():
            run[s] += 1
            proved[s] += r["proved"] == "True"
            best[s] += bool(r["cost"]) and int(r["cost"]) == min(costs)
        mine = group.get("partita")
        others = [r for s, r in group.items() if s != "partita" and r["proved"] == "True"]
        if mine is None:
            continue
        if any(r["cost"] != mine["cost"] for r in others) or \
                any(int(mine["bound"]) > c for c in costs):
            # An answer that is only worse than a proved one is no contradiction.
            late = mine["proved"] != "True" and all(
                int(mine["bound"]) <= c for c in costs) and all(
                mine["cost"] and int(mine["cost"]) >= int(r["cost"]) for r in others)
            (beaten if late else wrong).append(seed)
        if others and mine["proved"] != "True":
            open_.append(seed)
        elif others:
            ratios.append(float(mine["cpu"]) / min(float(r["cpu"]) for r in others))
    text = ["| solver | problems run | proved | best cost of those run |",
            "|---|---|---|---|"]
    text += [f"| {s} | {run[s]} | {proved[s]} | {best[s]} |" for s in solvers]
    if ratios:
        text += ["", f"CPU seconds of partita over those of the faster one that proves its "
                 f"optimum, where partita proves it too, {len(ratios)} problems: median {statistics.median(ratios):.4f}, "
                 f"largest {max(ratios):.2f}, above 0.1 on "
                 f"{sum(r > 0.1 for r in ratios)}."]
    text += ["", f"Contradictions: {len(wrong)} {wrong if wrong else ''}".rstrip() + ". "
             f"Optima proved by another: not reached {len(beaten)}"
             f"{' ' + str(beaten) if beaten else ''}, reached but not proved "
             f"{len(open_)}{' ' + str(open_) if open_ else ''}."]
    return "\n".join(text), bool(wrong)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default="build/dev/bin/partita-solve")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--solvers", default="partita,highs,cp-sat")
    parser.add_argument("--again", action="store_true",
                        help="run also what the file holds already, and replace it")
    parser.add_argument("--summary", action="store_true", help="run nothing")
    parser.add_argument("--write", metavar="FOLDER", help="only write the problems there")
    parser.add_argument("-o", "--output", required=True)
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.count)
    if options.write:
        for seed in seeds:
            with open(os.path.join(options.write, f"mid-{seed}.json"), "w") as file:
                json.dump(generate(seed), file)
        return 0
    rows = load(options.output)
    chosen = [] if options.summary else options.solvers.split(",")
    if options.again:
        rows = [r for r in rows
                if r["solver"] not in chosen or int(r["seed"]) not in seeds]
    known = {(int(r["seed"]), r["solver"]): r for r in rows}
    writing = threading.Lock()
    with open(options.output, "a" if not options.again else "w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        if not known or options.again:
            writer.writeheader()
            writer.writerows(rows)

        def write(seed):
            mine = {k: r for k, r in known.items() if k[0] == seed}
            for row in run(seed, chosen, mine, options):
                with writing:
                    writer.writerow(row)
                    file.flush()
                    print(",".join(str(row[f]) for f in FIELDS), flush=True)

        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            for done in [pool.submit(write, seed) for seed in seeds]:
                done.result()
    text, wrong = summary(load(options.output))
    print(text)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
