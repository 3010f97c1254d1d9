"""Reports of benchmarks and fault runs: figures and goals, one file each in build/bench, all in one form."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson
from pydantic import BaseModel, ConfigDict

from tests.support.size import SIZE, RunSize

BUILD: Final = Path(__file__).parents[2] / "build"
FOLDER: Final = Path(os.environ.get("BENCH_FOLDER", BUILD / "bench"))
"""Where reports are written, and programs of benchmarks compiled."""
_FORMAT: Final = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY


class Goal(NamedTuple):
    """A figure and its bound; an upper one unless ``at_least``."""

    name: str
    unit: str
    goal: float
    measured: float | None
    at_least: bool = False

    @property
    def reached(self) -> bool:
        """Whether the goal is reached; never without a figure."""
        if self.measured is None:
            return False
        return bool(self.measured >= self.goal if self.at_least else self.measured <= self.goal)

    def row(self) -> dict[str, Any]:
        """Return the goal for a bench file."""
        name = f"{self.name} ({'at least' if self.at_least else 'at most'})"
        # Also of numpy and bool.
        measured = None if self.measured is None else float(self.measured)
        return {
            "name": name,
            "unit": self.unit,
            "goal": float(self.goal),
            "measured": measured,
            "reached": self.reached,
        }


class GoalRow(BaseModel):
    """A goal in a bench file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str
    unit: str
    goal: float
    measured: float | None
    reached: bool

    def goal_of(self) -> Goal:
        """Return the goal that this is the row of."""
        name, _, bound = self.name.rpartition(" (")
        return Goal(name, self.unit, self.goal, self.measured, at_least=bound == "at least)")


class BenchFile(BaseModel):
    """The form of every bench file; other fields are the figures of its own."""

    model_config = ConfigDict(extra="allow", strict=True)

    name: str
    size: RunSize
    goals: list[GoalRow]


def write(name: str, figures: Mapping[str, Any], goals: Sequence[Goal]) -> Path:
    """Write build/bench/NAME.json; return its path. ``figures`` have none of the fields of :class:`BenchFile`."""
    path = FOLDER / f"{name}.json"
    FOLDER.mkdir(parents=True, exist_ok=True)
    document = dict(name=name, size=SIZE, **figures, goals=[goal.row() for goal in goals])
    path.write_bytes(orjson.dumps(document, option=_FORMAT))
    return path


def read(path: Path) -> BenchFile:
    """Return a bench file.

    Raises:
        ValueError: it has not the form of all, or the name of another file.
        OSError: it cannot be read.
    """
    found = BenchFile.model_validate_json(path.read_bytes())
    if found.name != path.stem:
        raise ValueError(f"{path} has the name {found.name}")
    return found


def exit_code(goals: Sequence[Goal]) -> int:
    """Return 1 if a goal was missed, else 0; 0 as well where the size is too small to judge any."""
    return int(SIZE is not RunSize.SMOKE and not all(goal.reached for goal in goals))


def table(goals: Sequence[Goal]) -> str:
    """Return the goals as text."""
    rows = [goal.row() for goal in goals]
    width = max((len(row["name"]) for row in rows), default=0)
    lines = []
    for row in rows:
        mark = "ok  " if row["reached"] else "MISS"
        lines.append(f"  {mark} {row['name']:<{width}}  {row['measured']} (goal {row['goal']}) {row['unit']}")
    return "\n".join(lines)
