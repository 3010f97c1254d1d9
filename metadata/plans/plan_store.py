"""Plans on disk, and their summaries in memory, which spare status requests the decoding of plans."""

import contextlib
import os
import threading
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import orjson

from diem.errors import DiemError
from metadata.plans.plan import BadPlan, Plan, decode, encode


class PlanSummary(NamedTuple):
    """A plan in short."""

    epoch: int
    """Of the map that it was made for."""
    created: str
    partitions: int
    endpoints: int
    """That it names."""
    moves: int
    """Endpoints that it moved when it was begun; 0 before."""


def summarize(plan: Plan, before: Mapping[str, int] | None) -> PlanSummary:
    """Return the summary of ``plan``, which moves the endpoints of ``before``."""
    return PlanSummary(plan.epoch, plan.created, plan.partitions, len(plan.homes), len(before or ()))


KEPT: Final = 50
"""Plans; of more, those that were submitted or begun first are forgotten."""
BEGUN: Final = 10
"""Of them, those that were begun last are kept in any case: whoever forgets may not have read yet what is applied."""
_BEFORE: Final = ".before"


class PlanNotStored(DiemError):
    """A plan cannot be written down, so it is not begun either."""


class PlanStore:
    """Plans in a directory: of each a file, and one of what it replaced. Instances on one machine may share it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._summaries: dict[str, tuple[tuple[int, int], PlanSummary]] = {}
        """Summaries by plan, with the sizes of the files that each was made from; of plans that are kept only."""

    def put(self, plan: Plan, spared: Collection[str] = ()) -> None:
        """Keep a plan. Those that are ``spared`` are not forgotten for it: what they replaced is needed.

        Raises:
            PlanNotStored: the directory cannot be written to.
        """
        kept = self._path(plan.id)
        self._write(kept, encode(plan))
        self._summaries[plan.id] = _sizes(kept), summarize(plan, self.before(plan.id))
        # Not this one, also if the clock was set back and the others look newer.
        known = sorted(self._plans(), key=_last_used)
        begun = sorted((path for path in known if _begun(path) >= 0), key=_begun)[-BEGUN:]
        spared = {kept.stem, *spared, *(path.stem for path in begun)}
        others = [path for path in known if path.stem not in spared]
        for path in others[: max(0, len(known) - KEPT)]:
            # The plan itself is the last of them. Earlier releases kept a third file.
            for file in sorted(self._directory.glob(f"{path.stem}.*")):
                # Another instance may forget it just now.
                with contextlib.suppress(OSError):
                    file.unlink()

    def get(self, name: str) -> Plan | None:
        """Return the plan of that name: all of it, which takes a second for a million endpoints."""
        path = self._path(name)
        loaded = self._load(path) if path in self._plans() else None
        return None if loaded is None else loaded[0]

    def names(self) -> list[str]:
        """Return all plans, in the order in which they were submitted."""
        return [path.stem for path in self._plans()]

    def summaries(self) -> dict[str, PlanSummary]:
        """Return the summaries of all plans that can be read, in the order in which they were submitted."""
        found = {path.stem: self._summary(path) for path in self._plans()}
        return {name: summary for name, summary in found.items() if summary is not None}

    def summary(self, name: str) -> PlanSummary | None:
        """Return the summary of a plan. The first time after a start, and after a change, the plan is decoded."""
        path = self._path(name)
        return self._summary(path) if path in self._plans() else None

    def _summary(self, path: Path) -> PlanSummary | None:
        known = self._summaries.get(path.stem)
        if known is not None and known[0] == _sizes(path):
            return known[1]
        loaded = self._load(path)
        return None if loaded is None else loaded[1]

    def _load(self, path: Path) -> tuple[Plan, PlanSummary] | None:
        # Before it is read: a summary of what is changed meanwhile does not count as one of what is there then.
        sizes = _sizes(path)
        try:
            plan = decode(path.read_bytes())
        except (OSError, BadPlan):
            return None
        summary = summarize(plan, self.before(path.stem))
        self._summaries[path.stem] = sizes, summary
        return plan, summary

    def put_before(self, name: str, homes: Mapping[str, int]) -> None:
        """Keep where the endpoints that a plan moves were before it.

        Raises:
            PlanNotStored: the directory cannot be written to.
        """
        path, known = self._path(name), self._summaries.get(name)
        self._write(path.with_suffix(_BEFORE), orjson.dumps(homes))
        if known is not None:
            self._summaries[name] = _sizes(path), known[1]._replace(moves=len(homes))

    def before(self, name: str) -> dict[str, int] | None:
        """Return where the endpoints were before a plan; None if it was never begun."""
        try:
            homes = orjson.loads(self._path(name).with_suffix(_BEFORE).read_bytes())
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
        for name in set(self._summaries) - {path.stem for _, path in found}:
            self._summaries.pop(name, None)
        return [path for _, path in sorted(found)]

    def _write(self, path: Path, data: bytes) -> None:
        # Of its own: instances, and threads of one, may write the same file at once.
        temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}")
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                # What can be applied can be taken back, also after the machine has lost its power.
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise PlanNotStored(f"the plan cannot be kept in {self._directory}: {error.strerror or error}") from error


def _sizes(path: Path) -> tuple[int, int]:
    """Return the bytes of a plan, and of what it replaced; -1 for what is not there."""
    plan, before = (_stat(file, "st_size") for file in (path, path.with_suffix(_BEFORE)))
    return plan, before


def _last_used(path: Path) -> int:
    return max(_stat(path, "st_mtime_ns"), _begun(path))


def _begun(path: Path) -> int:
    return _stat(path.with_suffix(_BEFORE), "st_mtime_ns")


def _stat(path: Path, field: str) -> int:
    try:
        return int(getattr(path.stat(), field))
    except OSError:
        return -1
