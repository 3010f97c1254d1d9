"""Bench files: figures and goals, one file per bench in build/bench."""

from pathlib import Path
from typing import Any, NamedTuple

import orjson

BUILD = Path(__file__).parents[2] / "build"


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
        return self.measured >= self.goal if self.at_least else self.measured <= self.goal

    def row(self) -> dict[str, Any]:
        """Return the goal for a bench file."""
        name = f"{self.name} ({'at least' if self.at_least else 'at most'})"
        values = {"unit": self.unit, "goal": self.goal, "measured": self.measured, "reached": self.reached}
        return {"name": name, **values}


def write(name: str, figures: dict[str, Any], goals: list[Goal]) -> Path:
    """Write build/bench/NAME.json; return its path."""
    path = BUILD / "bench" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {"name": name, **figures, "goals": [goal.row() for goal in goals]}
    path.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    return path


def table(goals: list[Goal]) -> str:
    """Return the goals as text."""
    rows = [goal.row() for goal in goals]
    width = max(len(row["name"]) for row in rows)
    lines = []
    for row in rows:
        mark = "ok  " if row["reached"] else "MISS"
        lines.append(f"  {mark} {row['name']:<{width}}  {row['measured']} (goal {row['goal']}) {row['unit']}")
    return "\n".join(lines)
