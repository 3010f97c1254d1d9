"""Plans on disk, with summaries in memory to spare status requests the decoding."""

import contextlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import orjson

from diem.errors import DiemError
from diem.process.private_files import replace_private
from metadata.plans.plan import BadPlan, Plan, decode, encode


class PlanSummary(NamedTuple):
    """The parts of a plan needed for its status."""

    epoch: int
    """Epoch of the map at the plan's computation."""
    created: str
    partitions: int
    endpoints: int
    """Number of endpoints with a home in the plan."""
    moves: int
    """Number of endpoints it moves; 0 until it begins."""


def summarize(plan: Plan, before: Mapping[str, int] | None) -> PlanSummary:
    """Summarize ``plan``, which moves the endpoints in ``before``."""
    return PlanSummary(plan.epoch, plan.created, plan.partitions, len(plan.homes), len(before or ()))


MAX_PLANS: Final = 50
"""Maximum number of stored plans; beyond it, those submitted or begun first are removed."""
PROTECTED: Final = 10
"""Number of plans begun last that are never removed: an instance may not have read yet which one is applied."""
_BEFORE: Final = ".before"


class PlanNotStored(DiemError):
    """A plan cannot be stored, so it is not begun either."""


class PlanStore:
    """Plans in a directory that instances on one machine may share: a file each, and one for the homes it replaced."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._summaries: dict[str, tuple[tuple[int, int], PlanSummary]] = {}
        """Summaries of stored plans by name, each with the sizes of the files that it was made from."""

    def put(self, plan: Plan, protected: Collection[str] = ()) -> None:
        """Store a plan, and remove the oldest beyond :data:`MAX_PLANS`.

        Plans named in ``protected`` are not removed: a rollback needs what they replaced.

        Raises:
            PlanNotStored: the directory cannot be written to.
        """
        new = self._path(plan.id)
        self._write(new, encode(plan))
        self._summaries[plan.id] = _sizes(new), summarize(plan, self.before(plan.id))
        known = sorted(self._plans(), key=_last_used)
        begun = sorted((path for path in known if _begun(path) >= 0), key=_begun)[-PROTECTED:]
        # Keep the new plan even if the clock was set back and the others look newer.
        protected = {new.stem, *protected, *(path.stem for path in begun)}
        removable = [path for path in known if path.stem not in protected]
        for path in removable[: max(0, len(known) - MAX_PLANS)]:
            # The plan itself sorts last.
            for file in sorted(self._directory.glob(f"{path.stem}.*")):
                # Another instance may be removing it as well.
                with contextlib.suppress(OSError):
                    file.unlink()

    def get(self, name: str) -> Plan | None:
        """Return the whole plan; None without one. Decoding takes a second for a million endpoints."""
        path = self._path(name)
        loaded = self._load(path) if path in self._plans() else None
        return None if loaded is None else loaded[0]

    def names(self) -> list[str]:
        """Return the names of all plans, in order of submission."""
        return [path.stem for path in self._plans()]

    def summaries(self) -> dict[str, PlanSummary]:
        """Return the summaries of all plans that can be read, in order of submission."""
        summaries = {path.stem: self._summary(path) for path in self._plans()}
        return {name: summary for name, summary in summaries.items() if summary is not None}

    def summary(self, name: str) -> PlanSummary | None:
        """Return the summary of a plan; None without one. Decodes the plan after a start and after a change."""
        path = self._path(name)
        return self._summary(path) if path in self._plans() else None

    def _summary(self, path: Path) -> PlanSummary | None:
        known = self._summaries.get(path.stem)
        if known is not None and known[0] == _sizes(path):
            return known[1]
        loaded = self._load(path)
        return None if loaded is None else loaded[1]

    def _load(self, path: Path) -> tuple[Plan, PlanSummary] | None:
        # Taken before the files are read: a change meanwhile makes the summary outdated.
        sizes = _sizes(path)
        try:
            plan = decode(path.read_bytes())
        except (OSError, BadPlan):
            return None
        summary = summarize(plan, self.before(path.stem))
        self._summaries[path.stem] = sizes, summary
        return plan, summary

    def put_before(self, name: str, homes: Mapping[str, int]) -> None:
        """Store the previous homes of the endpoints moved by a plan.

        Raises:
            PlanNotStored: the directory cannot be written to.
        """
        path, known = self._path(name), self._summaries.get(name)
        self._write(path.with_suffix(_BEFORE), orjson.dumps(homes))
        if known is not None:
            self._summaries[name] = _sizes(path), known[1]._replace(moves=len(homes))

    def before(self, name: str) -> dict[str, int] | None:
        """Return the previous homes of the endpoints moved by a plan; None if it was never begun."""
        try:
            homes = orjson.loads(self._path(name).with_suffix(_BEFORE).read_bytes())
        except (OSError, orjson.JSONDecodeError):
            return None
        return homes if isinstance(homes, dict) else None

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}.plan"

    def _plans(self) -> list[Path]:
        plans = []
        for path in self._directory.glob("p-*.plan"):
            # Another instance may be removing it.
            with contextlib.suppress(OSError):
                plans.append((path.stat().st_mtime_ns, path))
        for name in set(self._summaries) - {path.stem for _, path in plans}:
            self._summaries.pop(name, None)
        return [path for _, path in sorted(plans)]

    def _write(self, path: Path, data: bytes) -> None:
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            # Anything applied can be rolled back, even after a power failure.
            replace_private(path, data, sync=True)
        except OSError as error:
            raise PlanNotStored(f"the plan cannot be stored in {self._directory}: {error.strerror or error}") from error


def _sizes(path: Path) -> tuple[int, int]:
    """Return the sizes in bytes of a plan's two files; -1 for a missing one."""
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
