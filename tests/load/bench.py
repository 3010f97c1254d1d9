"""Bench files: figures with the goals beside them, one file per bench in build/bench."""

from pathlib import Path
from typing import Any, NamedTuple

import orjson

BUILD = Path(__file__).parents[2] / "build"


class Goal(NamedTuple):
    """A figure and what it should be; the direction is part of the name: ``at most`` unless it says ``at least``."""

    name: str
    unit: str
    goal: float
    measured: float | None
    at_least: bool = False

    @property
    def reached(self) -> bool:
        """Whether it is; a figure that could not be measured is not."""
        if self.measured is None:
            return False
        return self.measured >= self.goal if self.at_least else self.measured <= self.goal

    def row(self) -> dict[str, Any]:
        """The goal as a bench file holds it."""
        name = f"{self.name} ({'at least' if self.at_least else 'at most'})"
        values = {"unit": self.unit, "goal": self.goal, "measured": self.measured, "reached": self.reached}
        return {"name": name, **values}


def write(name: str, figures: dict[str, Any], goals: list[Goal]) -> Path:
    """Write build/bench/NAME.json; returns its path."""
    path = BUILD / "bench" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {"name": name, **figures, "goals": [goal.row() for goal in goals]}
    path.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    return path


def table(goals: list[Goal]) -> str:
    """The goals as lines for a person."""
    rows = [goal.row() for goal in goals]
    width = max(len(row["name"]) for row in rows)
    lines = []
    for row in rows:
        mark = "ok  " if row["reached"] else "MISS"
        lines.append(f"  {mark} {row['name']:<{width}}  {row['measured']} (goal {row['goal']}) {row['unit']}")
    return "\n".join(lines)
