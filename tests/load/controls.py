"""Proof that the oracle could have said no: the negative controls, done to the recorded history of a clean run."""

from pathlib import Path
from random import Random

from tests.load.bench import Goal
from tests.oracle import Bounds, judge, read_history
from tests.oracle.mutate import CONTROLS, EXPECTED, NotApplicable


def controls(folder: Path, bounds: Bounds, seed: int) -> list[Goal]:
    """One goal per control: 1 when the oracle names it. A run that is too short for a control leaves it out."""
    history = read_history(folder)
    goals = []
    for name, mutate in CONTROLS.items():
        try:
            broken = mutate(history, Random(seed))
        except NotApplicable:
            continue
        found = {type(violation).__name__ for violation in judge(broken, bounds).violations}
        goals.append(Goal(f"negative control {name} is named", "", 1, float(found >= EXPECTED[name]), at_least=True))
    return goals
