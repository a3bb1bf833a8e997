"""Writes a trace of a step of two stages and four micro-batches in which a forward part lasts
10 us, a backward part 20 us, and nothing happens between them that the order does not ask
for. A test judges the chart of these times: the times of a run depend on the machine."""
import json
import sys

STARTS = {0: "F0@0 F1@10 B0@40 F2@60 B1@70 F3@90 B2@100 B3@130",
          1: "F0@10 B0@20 F1@40 B1@50 F2@70 B2@80 F3@100 B3@110"}
NAMES = {"F": ("run_forward", 10), "B": ("run_backward", 20)}


def event(kind, name, rank, start, lasts, micro=None):
    args = {"request": 0} if micro is None else {"request": 0, "micro_batch": micro}
    return {"ph": "X", "name": name, "cat": kind, "pid": 0, "tid": rank, "ts": start,
            "dur": lasts, "args": args}


events = []
for rank, starts in STARTS.items():
    for part in starts.split():
        what, start = part.split("@")
        name, lasts = NAMES[what[0]]
        events.append(event("segment", name, rank, int(start), lasts, int(what[1:])))
    events.append(event("request", "request 0", rank, 0, 150))
with open(sys.argv[1], "w") as out:
    json.dump({"traceEvents": events}, out)
