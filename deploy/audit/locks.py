"""Locked packages: those of ``requirements``, ``client/package-lock.json`` and the files ``jars.lock``.

Packages of the operating system (nginx, PostgreSQL, Chromium, Java) are in no lock file.
"""

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from deploy.jars import locked

ROOT: Final = Path(__file__).parents[2]


class Ecosystem(Enum):
    """A registry's kind of package; the value is the type in a package URL (purl)."""

    PYTHON = "pypi"
    NPM = "npm"
    MAVEN = "maven"


class Scope(IntEnum):
    """Need of a package, the strongest first: the names are CycloneDX's."""

    required = 0
    """Part of every running DIEM, or of the page."""
    optional = 1
    """Part of some installations: Spark, the local Kafka, matplotlib, Node.js or Java as a package."""
    excluded = 2
    """Builds or tests DIEM."""


PYTHON_LOCKS: Final = {
    "run": Scope.required,
    "spark": Scope.optional,
    "node": Scope.optional,
    "java": Scope.optional,
    "figures": Scope.optional,
    "docs": Scope.excluded,
    "quality": Scope.excluded,
    "test": Scope.excluded,
}
"""Lock files in ``requirements``, by name. Each repeats ``run``, whose packages keep the scope they have there."""
JAR_LOCKS: Final = (
    "deploy/kafka/jars.lock",
    "learning/spark/jars.lock",
    "learning/spark/s3/jars.lock",
    "learning/spark/wheel/jars.lock",
)
BUNDLED: Final = frozenset({"uplot"})
"""npm packages whose code is in the page; all others build or test it."""

_BLOCK: Final = re.compile(
    r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)(?P<rest>(?:.*\n(?![A-Za-z0-9]))*.*)", re.MULTILINE
)
_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_VIA: Final = re.compile(r"^ +# (?:via)? *(\S.*)$", re.MULTILINE)
_OWN: Final = "diem"


@dataclass(frozen=True)
class Package:
    """One version of one package."""

    ecosystem: Ecosystem
    name: str
    """As the registry spells it; ``group:artifact`` of a jar."""
    version: str
    scope: Scope
    hashes: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Hexadecimal digest by CycloneDX's name of the algorithm; empty if the lock allows several files."""
    licence: str = ""
    """SPDX identifier or expression; empty if the lock has none."""
    needs: frozenset[str] = frozenset()
    """Package URLs of its direct dependencies."""
    direct: bool = False
    """DIEM itself needs it, and not only a dependency."""

    @property
    def purl(self) -> str:
        """Its package URL, which identifies it everywhere."""
        path = "/".join(quote(part, safe="") for part in self.name.replace(":", "/").split("/"))
        return f"pkg:{self.ecosystem.value}/{path}@{quote(self.version, safe='')}"


def python_packages(text: str, scope: Scope) -> list[Package]:
    """Return the packages of a lock file made by ``uv pip compile``; its comments ``via`` have the dependencies."""
    blocks = list(_BLOCK.finditer(text))
    found = [Package(Ecosystem.PYTHON, match["name"], match["version"], scope) for match in blocks]
    # By name: a package may have two versions, for different versions of Python.
    needs: dict[str, set[str]] = {package.name: set() for package in found}
    direct = set()
    for package, match in zip(found, blocks, strict=True):
        for parent in _VIA.findall(match["rest"]):
            name = parent.split(" ")[0].partition("[")[0]
            if name == _OWN:
                direct.add(package.name)
            elif name in needs:
                needs[name].add(package.purl)
    return [
        replace(
            package,
            hashes=_only_hash(match["rest"]),
            needs=frozenset(needs[package.name]),
            direct=package.name in direct,
        )
        for package, match in zip(found, blocks, strict=True)
    ]


def _only_hash(block: str) -> dict[str, str]:
    """Return the hash of a block that allows one file."""
    digests = _HASH.findall(block)
    return {"SHA-256": digests[0]} if len(digests) == 1 else {}


def npm_packages(lock: Mapping[str, Any]) -> list[Package]:
    """Return the packages of a ``package-lock.json`` of version 3."""
    entries: dict[str, Any] = {path: entry for path, entry in lock["packages"].items() if path}
    direct = lock["packages"][""].get("devDependencies", {}) | lock["packages"][""].get("dependencies", {})

    def bare(path: str) -> Package:
        name = path.rpartition("node_modules/")[2]
        scope = Scope.required if name in BUNDLED else Scope.excluded
        return Package(Ecosystem.NPM, name, entries[path]["version"], scope)

    def resolve(path: str, name: str) -> str | None:
        """Find ``name`` as Node.js does: in the package's own directory, then in those above."""
        while True:
            candidate = f"{path}/node_modules/{name}" if path else f"node_modules/{name}"
            if candidate in entries:
                return candidate
            if not path:
                return None
            path = path.rpartition("/node_modules/")[0] if "/node_modules/" in path else ""

    found = []
    for path, entry in entries.items():
        package = bare(path)
        wanted = (*entry.get("dependencies", {}), *entry.get("optionalDependencies", {}))
        resolved = [target for name in wanted if (target := resolve(path, name)) is not None]
        algorithm, _, digest = entry.get("integrity", "").partition("-")
        hashes = {"SHA-512": base64.b64decode(digest).hex()} if algorithm == "sha512" else {}
        found.append(
            replace(
                package,
                hashes=hashes,
                licence=entry.get("license", ""),
                needs=frozenset(bare(target).purl for target in resolved),
                direct=package.name in direct and path == f"node_modules/{package.name}",
            )
        )
    return found


def jar_packages(text: str) -> list[Package]:
    """Return the jars of a ``jars.lock``, which has no dependencies between them."""
    hashes: dict[str, list[str]] = {}
    for jar in locked(text):
        hashes.setdefault(jar.coordinate, []).append(jar.sha256)
    found = []
    for coordinate, digests in hashes.items():
        name, _, version = coordinate.rpartition(":")
        # Of several files, for different processors, none is the package.
        only = {"SHA-256": digests[0]} if len(digests) == 1 else {}
        found.append(Package(Ecosystem.MAVEN, name, version, Scope.optional, hashes=only, direct=True))
    return found


def all_packages(root: Path = ROOT) -> list[Package]:
    """Return the packages of all lock files below ``root``, once each, sorted by package URL."""
    found: dict[str, Package] = {}
    for package in _read(root):
        held = found.setdefault(package.purl, package)
        if held is not package:
            found[package.purl] = replace(
                held,
                scope=min(held.scope, package.scope),
                needs=held.needs | package.needs,
                direct=held.direct or package.direct,
            )
    return [found[purl] for purl in sorted(found)]


def of_ecosystem(packages: Iterable[Package], ecosystem: Ecosystem) -> list[Package]:
    """Return those of one ecosystem."""
    return [package for package in packages if package.ecosystem is ecosystem]


def _read(root: Path) -> Iterator[Package]:
    for name, scope in PYTHON_LOCKS.items():
        yield from python_packages((root / "requirements" / f"{name}.txt").read_text(encoding="utf-8"), scope)
    yield from npm_packages(json.loads((root / "client" / "package-lock.json").read_text(encoding="utf-8")))
    for lock in JAR_LOCKS:
        yield from jar_packages((root / lock).read_text(encoding="utf-8"))
