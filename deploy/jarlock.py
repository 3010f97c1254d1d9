"""Create the lock files of jars after a change of a version."""

import hashlib
import sys
import tempfile
from collections.abc import Collection, Iterable
from pathlib import Path

from deploy.jars import fetch


def resolve(roots: Iterable[str], left_out: Collection[str] = ()) -> list[str]:
    """Return the coordinates of every jar that the roots need to run, sorted; downloads their descriptions only."""
    from jgo.maven import MavenContext  # noqa: PLC0415

    chosen: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as scratch:
        context = MavenContext(repo_cache=Path(scratch))
        for root in roots:
            inputs, others = context.resolver.resolve([context.create_dependency(root)])
            for needed in (*inputs, *(other for other in others if other.scope in {"compile", "runtime"})):
                chosen.setdefault(f"{needed.groupId}:{needed.artifactId}", needed.version)
    return sorted(f"{name}:{version}" for name, version in chosen.items() if name not in left_out)


def write_lock(lock: Path, header: str, coordinates: Iterable[str]) -> None:
    """Write a lock file of these jars, downloading each; it is the old one until the new one is complete."""
    lines = [f"# {header}\n"]
    with tempfile.TemporaryDirectory() as scratch:
        for coordinate in coordinates:
            content = fetch(coordinate, Path(scratch)).read_bytes()
            lines.append(f"{coordinate} {hashlib.sha256(content).hexdigest()}\n")
            sys.stderr.write(f"{coordinate}\n")
    new = lock.with_suffix(".new")
    new.write_text("".join(lines), encoding="utf-8")
    new.replace(lock)
