"""Plans on disk, each with a summary beside it that spares status requests its decoding."""

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


def brief_of(plan: Plan, before: Mapping[str, int] | None) -> PlanSummary:
    """What is said of ``plan``, which moves the endpoints of ``before``."""
    return PlanSummary(plan.epoch, plan.created, plan.partitions, len(plan.homes), len(before or ()))


def encode_brief(brief: PlanSummary, sizes: tuple[int, int]) -> bytes:
    """The content of the file. ``sizes`` are those of the files that it was made from."""
    return orjson.dumps({"sizes": sizes, **brief._asdict()})


def read_brief(path: Path, sizes: tuple[int, int]) -> PlanSummary | None:
    """What the file says; None without one that was made from files of these ``sizes``."""
    try:
        match orjson.loads(path.read_bytes()):
            case {
                "sizes": [int(plan), int(before)],
                "epoch": int(epoch),
                "created": str(created),
                "partitions": int(partitions),
                "endpoints": int(endpoints),
                "moves": int(moves),
            } if (plan, before) == sizes:
                return PlanSummary(epoch, created, partitions, endpoints, moves)
    except (OSError, orjson.JSONDecodeError):
        pass
    return None


KEPT: Final = 50
"""Plans; of more, those that were submitted or begun first are forgotten."""
BEGUN: Final = 10
"""Of them, those that were begun last are kept in any case: whoever forgets may not have read yet what is applied."""
_BEFORE: Final = ".before"
_BRIEF: Final = ".brief"


class PlanNotStored(DiemError):
    """A plan cannot be written down, so it is not begun either."""


class PlanStore:
    """Plans in a directory: of each a file, its brief, and what it replaced. Instances on one machine may share it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def put(self, plan: Plan, spared: Collection[str] = ()) -> None:
        """Keep a plan. Those that are ``spared`` are not forgotten for it: what they replaced is needed.

        Raises:
            PlanNotStored: the directory cannot be written to.
        """
        kept = self._path(plan.id)
        self._write(kept, encode(plan))
        sizes = _sizes(kept)
        self._keep_brief(kept, brief_of(plan, self.before(plan.id)), sizes)
        # Not this one, also if the clock was set back and the others look newer.
        known = sorted(self._plans(), key=_last_used)
        begun = sorted((path for path in known if _begun(path) >= 0), key=_begun)[-BEGUN:]
        spared = {kept.stem, *spared, *(path.stem for path in begun)}
        others = [path for path in known if path.stem not in spared]
        for path in others[: max(0, len(known) - KEPT)]:
            for suffix in (_BEFORE, _BRIEF, path.suffix):
                # Another instance may forget it just now.
                with contextlib.suppress(OSError):
                    path.with_suffix(suffix).unlink()

    def get(self, name: str) -> Plan | None:
        """The plan of that name: all of it, which takes a second for a million endpoints."""
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

    def briefs(self) -> dict[str, PlanSummary]:
        """All plans that can be read, in short, in the order in which they were submitted."""
        found = {path.stem: self._brief(path) for path in self._plans()}
        return {name: brief for name, brief in found.items() if brief is not None}

    def brief(self, name: str) -> PlanSummary | None:
        """The plan of that name in short."""
        path = self._path(name)
        return self._brief(path) if path in self._plans() else None

    def _brief(self, path: Path) -> PlanSummary | None:
        # It is read as a whole only if there is no brief of what is there now, as of an earlier release.
        known = read_brief(path.with_suffix(_BRIEF), _sizes(path))
        if known is not None:
            return known
        # Before it is read: a brief of what is changed meanwhile is not taken for one of what is there then.
        sizes, plan = _sizes(path), self.get(path.stem)
        if plan is None:
            return None
        made = brief_of(plan, self.before(path.stem))
        with contextlib.suppress(PlanNotStored):
            self._keep_brief(path, made, sizes)
        return made

    def put_before(self, name: str, homes: Mapping[str, int]) -> None:
        """Keep where the endpoints that a plan moves were before it.

        Raises:
            PlanNotStored: the directory cannot be written to.
        """
        path, known = self._path(name), self.brief(name)
        self._write(path.with_suffix(_BEFORE), orjson.dumps(homes))
        if known is not None:
            self._keep_brief(path, known._replace(moves=len(homes)), _sizes(path))

    def before(self, name: str) -> dict[str, int] | None:
        """Where the endpoints were before a plan; None if it was never begun."""
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
        return [path for _, path in sorted(found)]

    def _keep_brief(self, path: Path, brief: PlanSummary, sizes: tuple[int, int]) -> None:
        self._write(path.with_suffix(_BRIEF), encode_brief(brief, sizes))

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
    """Bytes of a plan, and of what it replaced; -1 for what is not there."""
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
