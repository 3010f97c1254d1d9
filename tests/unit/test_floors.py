"""The lock files keep the versions below which known faults of the libraries lie (see the advisories named)."""

import re
from pathlib import Path

import pytest

LOCKS = sorted((Path(__file__).parents[2] / "requirements").glob("*.txt"))
FLOORS = {
    "starlette": (1, 3, 1),  # CVE-2026-48710, CVE-2025-62727, form limits
    "uvicorn": (0, 53),  # the sans-IO WebSocket implementation had no write back-pressure
    "websockets": (16, 1),  # bad fragmented compressed messages
    "orjson": (3, 11, 6),  # CVE-2025-67221, CVE-2024-27454
    "h11": (0, 16),  # CVE-2025-43859
}


def _versions(lock: Path) -> dict[str, tuple[int, ...]]:
    found = re.findall(r"^([a-z0-9-]+)==([0-9.]+)", lock.read_text(), re.MULTILINE)
    return {name: tuple(int(part) for part in version.split(".") if part) for name, version in found}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_locked_versions_are_not_below_their_floors(lock: Path) -> None:
    versions = _versions(lock)
    for name, floor in FLOORS.items():
        assert versions[name] >= floor, name


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_every_locked_package_has_hashes_and_no_lock_names_a_registry(lock: Path) -> None:
    text = lock.read_text()
    assert "://" not in text
    for block in re.split(r"\n(?=[a-z0-9])", text.strip()):
        assert "--hash=sha256:" in block, block.splitlines()[0]
    assert not re.search(r"^python-multipart==", text, re.MULTILINE), "no forms are taken"
