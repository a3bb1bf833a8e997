"""Checks what `partita run --profile --json` and `--trace` wrote.

usage: check_profile.py PROFILE.json TRACE.json RANKS REQUESTS REPORT.json
PROFILE.json: '-' where there is none. REPORT.json: `partita report --json` of the bundle.
"""
import collections
import json
import sys


def check_nodes(document, ranks, requests, planned):
    """Each figure is of one request, in order of the median; bytes are the plan's."""
    assert len(document["request_seconds"]) == requests
    assert all(s > 0 for s in document["request_seconds"])
    profile = document["profile"]
    assert (profile["requests"], profile["ranks"]) == (requests, ranks), profile
    nodes = profile["nodes"]
    medians = [node["median_seconds"] for node in nodes]
    assert medians == sorted(medians, reverse=True), "sorted by seconds"
    assert len({node["node"] for node in nodes}) == len(nodes)
    assert all(bound > 0 for bound in profile["roofline"].values()), profile["roofline"]
    for node in nodes:
        assert 0 <= node["min_seconds"] <= node["median_seconds"], node
        assert node["min_seconds"] <= max(document["request_seconds"]), node
        assert node["spread_seconds"] >= 0 and node["waiting_seconds"] >= 0, node
        assert 0 < node["ranks"] <= ranks
        if node["ranks"] == 1:
            assert node["spread_seconds"] == 0, node
        assert node["flops"] >= 0 and node["bytes"] >= 0, node
        for share, work in (("peak_share", "flops"), ("memory_share", "bytes")):
            assert (node[share] > 0) == (node[work] > 0), node
        talks = any(k in node["kinds"] for k in ("all-", "reduce", "transfer", "halo"))
        assert talks or (node["waiting_seconds"] == 0 and node["received_bytes"] == 0), node
    received = {n["node"]: n["received_bytes"] for n in nodes if n["received_bytes"]}
    for name, bytes in planned.items():
        assert received.pop(name) == bytes, (name, bytes)
    return received


def check_trace(document, ranks, requests):
    """One track per rank; on each, spans nest and requests follow one another."""
    events = document["traceEvents"]
    tracks = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert sorted(tracks) == list(range(ranks)), tracks
    assert all(name.startswith(f"rank {r}") for r, name in tracks.items()), tracks
    spans = collections.defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            # Whole nanoseconds.
            begin, length = round(event["ts"] * 1000), round(event["dur"] * 1000)
            spans[event["tid"]].append((begin, -length, event["cat"], event))
    assert sorted(spans) == list(range(ranks))
    # Outer to inner; a task's category is its kind.
    depths = {"request": 0, "segment": 1, "transfer": 1, "waiting": 3}
    for track in spans.values():
        depth = lambda c: depths.get(c, 2)
        track.sort(key=lambda s: (s[0], s[1], depth(s[2])))
        names = [s[3]["name"] for s in track if s[2] == "request"]
        assert names == [f"request {r}" for r in range(requests)], names
        open_spans = []
        for begin, length, category, event in track:
            while open_spans and open_spans[-1][0] <= begin and \
                    depth(category) <= open_spans[-1][1]:
                open_spans.pop()
            assert bool(open_spans) == (category != "request"), event
            if open_spans:
                assert begin - length <= open_spans[-1][0], ("leaves its span", event)
                assert depth(category) > open_spans[-1][1], ("overlaps", event)
            open_spans.append((begin - length, depth(category)))
    return spans


def main(profile, trace, ranks, requests, report):
    ranks, requests = int(ranks), int(requests)
    with open(report) as file:
        stages = json.load(file)["stages"]
    planned = collections.Counter()
    for stage in stages:
        for c in stage["collectives"]:
            planned[c["node"]] += c["bytes"] * c["times"]
    spans = check_trace(json.load(open(trace)), ranks, requests)
    per_rank = [sum(s[3]["args"].get("received_bytes", 0) for s in spans[r]) / requests
                for r in range(ranks)]
    assert len(stages) > 1 or max(per_rank) == sum(planned.values()), (per_rank, planned)
    if profile == "-":
        print(f"{ranks} tracks, {max(per_rank):.0f} bytes")
        return
    rest = check_nodes(json.load(open(profile)), ranks, requests, planned)
    print(f"{ranks} tracks, transfers {sorted(rest.items())}")


if __name__ == "__main__":
    main(*sys.argv[1:])
