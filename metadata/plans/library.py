"""The plans that were submitted, and where the endpoints were before: files, so that they outlive the process."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import orjson

from diem.errors import DiemError
from metadata.plans.plan import BadPlan, Plan, decode, encode

KEPT: Final = 50
"""Plans; of more, those that were submitted first are forgotten."""


class NotKept(DiemError):
    """A plan cannot be written down, so it is not begun either."""


class Library:
    """Plans in a directory, one file each and another with what it replaced. Instances on one machine may share it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def put(self, plan: Plan) -> None:
        """Keep a plan.

        Raises:
            NotKept: the directory cannot be written to.
        """
        kept = self._path(plan.id)
        self._write(kept, encode(plan))
        # Not this one, also if the clock was set back and the others look newer.
        for path in [path for path in self._plans() if path != kept][: 1 - KEPT]:
            path.with_suffix(".before").unlink(missing_ok=True)
            path.unlink(missing_ok=True)

    def get(self, name: str) -> Plan | None:
        """The plan of that name."""
        path = self._path(name)
        if path not in self._plans():
            return None
        try:
            return decode(path.read_bytes())
        except (OSError, BadPlan):
            return None

    def names(self) -> list[str]:
        """All plans, in the order in which they were submitted."""
        return [path.stem for path in self._plans()]

    def put_before(self, name: str, homes: Mapping[str, int]) -> None:
        """Keep where the endpoints that a plan moves were before it.

        Raises:
            NotKept: the directory cannot be written to.
        """
        self._write(self._path(name).with_suffix(".before"), orjson.dumps(homes))

    def before(self, name: str) -> dict[str, int] | None:
        """Where the endpoints were before a plan; None if it was never begun."""
        try:
            homes = orjson.loads(self._path(name).with_suffix(".before").read_bytes())
        except (OSError, orjson.JSONDecodeError):
            return None
        return homes if isinstance(homes, dict) else None

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}.plan"

    def _plans(self) -> list[Path]:
        found = []
        for path in self._directory.glob("p-*.plan"):
            # Another instance may forget it just now.
            with contextlib.suppress(OSError):
                found.append((path.stat().st_mtime_ns, path))
        return [path for _, path in sorted(found)]

    def _write(self, path: Path, data: bytes) -> None:
        temporary = path.with_name(f".{path.name}")
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(data)
            temporary.replace(path)
        except OSError as error:
            raise NotKept(f"the plan cannot be kept in {self._directory}: {error.strerror or error}") from error
