"""Counts of connections by address over all processes that share a port."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from diem.errors import ConfigurationError
from diem.process.limits import AddressLimits, AddressTable, AdmissionResult
from diem.process.shared_counts import MAX_PROCESSES, SharedCounts

ADDRESS = "192.0.2.1"
IPV6 = "2001:db8::1"


Process = Callable[[int], SharedCounts]


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    """Start to count as the process with a number."""
    found: list[SharedCounts] = []

    def start(number: int) -> SharedCounts:
        found.append(SharedCounts(tmp_path / "counts", number))
        return found[-1]

    yield start
    for each in found:
        each.close()


def _table(shared: SharedCounts, connections: int) -> AddressTable:
    return AddressTable(AddressLimits(connections=connections), shared=shared)


def _admit(table: AddressTable, address: str = ADDRESS) -> AdmissionResult | None:
    refusal = table.refusal(address, 0.0)
    if refusal is None:
        table.admit(address, 0.0)
    return refusal


def test_processes_share_the_limit_of_an_address(process: Process) -> None:
    one, other = (_table(process(number), 3) for number in (1, MAX_PROCESSES))
    assert [_admit(each) for each in (one, other, one)] == [None, None, None]
    assert _admit(one) is _admit(other) is AdmissionResult.ADDRESS_LIMIT
    assert _admit(other, "192.0.2.2") is None, "others have their own"


def test_a_released_connection_makes_room_in_the_other_process(process: Process) -> None:
    one, other = (_table(process(number), 1) for number in (1, 2))
    lent = one.admit(ADDRESS, 0.0)
    assert _admit(other) is AdmissionResult.ADDRESS_LIMIT
    one.release(ADDRESS, lent, 0.0)
    assert _admit(other) is None


def test_wider_networks_are_counted_together_too(process: Process) -> None:
    one, other = (_table(process(number), 1) for number in (1, 2))
    networks = [f"2001:db8:0:{number:x}::1" for number in range(5)]
    assert [_admit(each, at) for each, at in zip((one, other) * 2, networks, strict=False)] == [None] * 4
    assert _admit(one, networks[4]) is AdmissionResult.ADDRESS_LIMIT, "a /56 may have four times as many"


def test_connections_of_a_killed_process_are_not_counted(process: Process, tmp_path: Path) -> None:
    code = (
        "import os, pathlib, signal, sys; from diem.process.shared_counts import SharedCounts\n"
        f"SharedCounts(pathlib.Path(sys.argv[1]), 1).add({ADDRESS!r}, 5); os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", code, tmp_path / "counts"], check=False, env={**os.environ})
    assert killed.returncode < 0
    counts, other = process(2), process(3)
    other.add(ADDRESS, 1)
    assert not counts.exceeds(ADDRESS, 6, 0)
    assert counts.exceeds(ADDRESS, 2, 1)


def test_no_address_of_thousands_is_counted_with_the_connections_of_others(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With this seed 18 of them would share all counters if there were two for each.
    monkeypatch.setattr(os, "urandom", bytes)
    counts, other = process(1), process(2)
    addresses = [f"192.0.{number // 250}.{number % 250}" for number in range(4000)]
    for address in addresses:
        counts.add(address, 1)
    assert [address for address in addresses if other.exceeds(address, 2, 0)] == []


def test_a_successor_begins_without_connections(process: Process) -> None:
    first = process(1)
    first.add(ADDRESS, 1)
    other = process(2)
    assert other.exceeds(ADDRESS, 1, 0)
    first.close()
    process(1)
    assert not other.exceeds(ADDRESS, 1, 0)


def test_two_living_processes_cannot_have_one_number(process: Process) -> None:
    first = process(1)
    with pytest.raises(ConfigurationError, match="number 1"):
        process(1)
    with pytest.raises(ConfigurationError, match="at most 64"):
        process(MAX_PROCESSES + 1)
    assert not first.exceeds(ADDRESS, 1, 0)
