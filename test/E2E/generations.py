"""Folders of a run with `--checkpoint-dir`: their generations, and the log beside them."""
import json
import os
import re

import numpy as np

from states import TYPES, read_states


def losses(place):
    with open(f"{place}/log.jsonl") as file:
        log = [json.loads(line) for line in file]
    if [it["step"] for it in log] != list(range(1, len(log) + 1)):
        raise RuntimeError(f"steps of the log are {[it['step'] for it in log]}")
    return [(it["epoch"], it["loss"]) for it in log]


def steps_of(place):
    return sorted(int(name[5:]) for name in os.listdir(f"{place}/c")
                  if re.fullmatch(r"step-\d+", name))


def files_of(place):
    """Files in the folder of generations, but the mark of the start that has it."""
    return sorted(name for name in os.listdir(f"{place}/c") if not name.startswith("incarnation-"))


def states_of(place, step):
    """The states of a generation, from what docs/checkpoints.md says of it alone."""
    folder = f"{place}/c/step-{step}"
    with open(f"{folder}/manifest.json") as file:
        manifest = json.load(file)
    parts = [read_states(f"{folder}/{part['file']}")[0] for part in manifest["parts"]]
    result = {}
    for state in manifest["states"]:
        whole = np.empty(state["shape"], TYPES[state["type"].upper()])
        count = 0
        for piece in state["pieces"]:
            places = [np.concatenate([np.arange(at, at + n) for at, n in runs]
                                     or [[]]).astype(int) for runs in piece["runs"]]
            values = parts[piece["part"]][piece["tensor"]]
            count += values.size
            whole[np.ix_(*places)] = values
        if count != whole.size:
            raise RuntimeError(f"'{state['name']}' has {count} of {whole.size} elements")
        result[state["name"]] = whole
    return result


def same(what, first, second):
    for name in first:
        if first[name].tobytes() != second[name].tobytes():
            raise RuntimeError(f"{what}: '{name}' differs")
