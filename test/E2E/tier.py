"""Cases of a sweep that a run has. The suites run in two tiers (docs/checks.md): the full
tier has every case, the quick tier one case of every kind and a seeded tenth of the
others. test/Unit/Main/Tier.h is the same for suites in C++.
"""
import os
import random


def is_quick():
    """Whether PARTITA_TIER is "quick"; absent or "full": False."""
    tier = os.environ.get("PARTITA_TIER", "full")
    if tier not in ("quick", "full"):
        raise SystemExit(f"PARTITA_TIER is '{tier}': neither 'quick' nor 'full'")
    return tier == "quick"


def sample(sweep, cases, kind=lambda case: None):
    """The cases of this run, in their order. `sweep` is a name without blanks, unique among
    all suites and listed in test/sweeps.txt. The quick tier has one case of every
    `kind(case)` and a tenth of the others, drawn by the sweep's name and PARTITA_SEED
    (absent: 1). The numbers are appended to the file that PARTITA_SWEEPS names, by which
    utils/sum_results.py sees that no case was lost."""
    cases = list(cases)
    taken = cases
    if is_quick():
        draw = random.Random(f"{os.environ.get('PARTITA_SEED', '1')} {sweep}")
        kinds = {}
        for index, case in enumerate(cases):
            kinds.setdefault(kind(case), []).append(index)
        chosen = {draw.choice(indices) for indices in kinds.values()}
        chosen |= {index for index in range(len(cases)) if draw.random() < 0.1}
        taken = [cases[index] for index in sorted(chosen)]
    record(sweep, len(taken), len(cases))
    return taken


def record(sweep, taken, total):
    """Says how many cases of a sweep this run has."""
    path = os.environ.get("PARTITA_SWEEPS")
    if path:
        with open(path, "a") as file:
            file.write(f"{sweep} {taken} {total}\n")
