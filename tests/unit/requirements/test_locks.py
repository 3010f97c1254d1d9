"""The lock files of one environment: they are installed one after the other, while tests run."""

import re
from pathlib import Path

REQUIREMENTS = Path(__file__).parents[3] / "requirements"
PINNED = re.compile(r"^([A-Za-z0-9_.-]+)==(\S+)", re.MULTILINE)


def test_what_is_installed_during_tests_replaces_no_package() -> None:
    installed: dict[str, set[tuple[str, ...]]] = {}
    for name in ("run", "test", "spark"):
        found: dict[str, tuple[str, ...]] = {}
        for package, version in PINNED.findall((REQUIREMENTS / f"{name}.txt").read_text(encoding="utf-8")):
            found[package] = (*found.get(package, ()), version)
        for package, versions in found.items():
            installed.setdefault(package, set()).add(versions)
    assert {package: versions for package, versions in installed.items() if len(versions) > 1} == {}
