import asyncio
import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from diem.process.listeners import PortTaken
from services.composite import ports as module
from services.composite.ports import STEP, FreePorts


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "ports.json"


@contextmanager
def listening(port: int = 0) -> Iterator[int]:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port))
        taken.listen()
        yield taken.getsockname()[1]


def test_child_keeps_the_ports_that_it_was_given_and_shares_none(file: Path) -> None:
    ports = FreePorts(random.Random(1), 1, file)
    given = {name: ports.of(name) for name in ("a", "b", "c")}
    assert len({port for pair in given.values() for port in pair}) == 6
    assert all(ports.of(name) == pair for name, pair in given.items())


def test_port_that_is_taken_is_not_given(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with listening() as port:
        monkeypatch.setattr(module, "RANGE", range(port - 1, port + 1))
        with pytest.raises(PortTaken):
            FreePorts(random.Random(1), 1, file).one()
    assert FreePorts(random.Random(1), 1, file).one() == port


def test_next_composite_has_the_same_ports_except_for_those_that_are_taken(file: Path) -> None:
    before = FreePorts(random.Random(), 1, file)
    one, other = before.of("one"), before.of("other")
    with listening(other.internal):
        after = FreePorts(random.Random(), 1, file)
        assert after.of("one") == one
        assert not set(after.of("other")) & {*one, other.internal}
    assert FreePorts(random.Random(), 1, file).of("other") == after.of("other")


@pytest.mark.parametrize("content", ["", "[]", "3", '{"one": 3}', '{"one": [1, 2, 3]}', '{"one": ["a", 2]}'])
def test_file_that_cannot_be_read_is_as_good_as_none(file: Path, content: str) -> None:
    file.write_text(content)
    assert FreePorts(random.Random(), 1, file).of("one") == FreePorts(random.Random(), 1, file).of("one")


async def test_ports_of_children_that_are_about_to_end_are_waited_for_but_not_for_ever(file: Path) -> None:
    one = FreePorts(random.Random(), 1, file).of("one")
    after = FreePorts(random.Random(), 1, file)
    with listening(one.public):
        await after.settle(0.1)
        waiting = asyncio.create_task(after.settle(10))
        await asyncio.sleep(0)
        assert not waiting.done()
    async with asyncio.timeout(5):
        await waiting
    assert after.of("one") == one


def test_composites_that_start_together_cannot_choose_the_same_port(tmp_path: Path) -> None:
    made = [FreePorts(random.Random(1), number, tmp_path / str(number)) for number in range(1, STEP + 1)]
    assert {ports.one() % STEP for ports in made} == set(range(STEP))


def test_ports_of_the_composite_itself_are_given_to_no_child(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = FreePorts(random.Random(), 1, file).one()
    monkeypatch.setattr(module, "RANGE", range(port - 1, port + 1))
    ports = FreePorts(random.Random(), 1, file)
    ports.reserve(port)
    with pytest.raises(PortTaken):
        ports.one()
