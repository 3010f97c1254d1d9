"""The tests' own helper for ports: several workers run at once."""

from pathlib import Path

import pytest

from diem.process.addresses import HOST
from diem.process.listeners import bind
from tests.support import ports
from tests.support.ports import BLOCK, OWN_RANGE, free_port, free_ports
from tests.support.simultaneous import print_simultaneously

FEW = range(30_000, 31_000)
"""Ten blocks, which no other test of this run takes ports from: few enough that three processes meet."""


def test_processes_that_are_given_ports_at_once_are_given_different_ones() -> None:
    given = print_simultaneously(
        f"""
import sys
from tests.support import ports
ports.OWN_RANGE = range({FEW.start}, {FEW.stop})
input()
print(*(ports.free_port() for _ in range({BLOCK - 10})))
""",
        3,
    )
    assert len(given) == len(set(given)) == 3 * (BLOCK - 10)


def test_port_is_given_once_and_is_not_one_that_the_kernel_gives_to_connections() -> None:
    given = [free_port() for _ in range(2 * BLOCK)]
    assert len(set(given)) == len(given)
    assert all(port in OWN_RANGE and port not in ports.given_to_connections() for port in given)


def test_ports_in_a_row_are_given_to_nobody_else() -> None:
    given = [port for count in (BLOCK - 1, 1, 60, 60, 2) for port in free_ports(count)]
    given += [free_port() for _ in range(BLOCK)]
    assert len(set(given)) == len(given)
    assert not any(port % BLOCK == 0 for port in given), "the first port of a block reserves the block"


def test_ports_in_a_row_are_all_free() -> None:
    row = free_ports(3)
    with bind(HOST, row[1]):
        ports._unused.extend(row)
        assert row[1] not in free_ports(3)


def test_blocks_that_the_kernel_gives_ports_from_are_left_out() -> None:
    blocks = range(1000, 1000 + 4 * BLOCK, BLOCK)
    assert ports.overlapping(blocks, range(blocks[1] + 1, blocks[2] + 1)) == {blocks[1], blocks[2]}
    assert ports.overlapping(blocks, range(blocks[3] + BLOCK, 60_999)) == set()


def test_a_machine_that_gives_all_ports_to_connections_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "range"
    monkeypatch.setattr(ports, "_EPHEMERAL", file)
    file.write_text("1024\t65535\n")
    with pytest.raises(RuntimeError, match="the tests need ports outside"):
        ports._new_block()
