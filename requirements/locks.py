"""Writes lock files of jars, which ``deploy.jars`` reads."""

import hashlib
import sys
import tempfile
from collections.abc import Collection, Iterable
from pathlib import Path

from deploy.jars import fetch, maven
from diem.process.files import replace_file


def resolve(roots: Iterable[str], left_out: Collection[str] = ()) -> list[str]:
    """Return the sorted coordinates of all runtime dependencies of the roots; downloads only their POMs."""
    chosen: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as scratch:
        context = maven(Path(scratch))
        for root in roots:
            inputs, others = context.resolver.resolve([context.create_dependency(root)])
            for needed in (*inputs, *(other for other in others if other.scope in {"compile", "runtime"})):
                chosen.setdefault(f"{needed.groupId}:{needed.artifactId}", needed.version)
    return sorted(f"{name}:{version}" for name, version in chosen.items() if name not in left_out)


def write_lock(lock: Path, header: str, coordinates: Iterable[str]) -> None:
    """Download these jars and write their lock file, replacing the old one atomically."""
    lines = [f"# {header}\n"]
    with tempfile.TemporaryDirectory() as scratch:
        for coordinate in coordinates:
            content = fetch(coordinate, Path(scratch)).read_bytes()
            lines.append(f"{coordinate} {hashlib.sha256(content).hexdigest()}\n")
            sys.stderr.write(f"{coordinate}\n")
    replace_file(lock, "".join(lines).encode())
