"""A composite with fake children that only serve their status."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from diem.process.auth import SharedKey
from diem.process.ports import PersistedPorts, PortReservations
from services.composite.composite import Composite, StatusPoller
from services.composite.plan import Child, CompositePlan, child_names, children
from tests.support.patience import PATIENCE_S, until

FAKE = Path(__file__).parent / "fake_child.py"
PLAN = CompositePlan(1, "z-composite", "127.0.0.1", 1)


def fake(child: Child) -> tuple[str, ...]:
    return (sys.executable, str(FAKE), child.process)


def unready(tmp_path: Path, *names: str) -> None:
    # In one step: a child that reads an empty file reports that it is ready.
    written = tmp_path / "unready.new"
    written.write_text(" ".join(names))
    written.replace(tmp_path / "unready")


def stopped(tmp_path: Path) -> list[str]:
    return (tmp_path / "stopped").read_text().split()


@asynccontextmanager
async def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pairs: int) -> AsyncIterator[Composite]:
    key = SharedKey.create(tmp_path / "key")
    monkeypatch.setenv("DIEM_INTERNAL_KEY_FILE", str(tmp_path / "key"))
    monkeypatch.setenv("FAKE_FOLDER", str(tmp_path))
    ports = PersistedPorts(PortReservations(), tmp_path / "ports")
    composite = Composite(
        lambda count: children(PLAN, count, ports.of), pairs, StatusPoller(key), PATIENCE_S, launch=fake
    )
    task = asyncio.create_task(composite.run())
    try:
        yield composite
    finally:
        task.cancel()
        await asyncio.wait({task})
        # Children that are killed, because the machine stands still, do not say that they have stopped.
        await composite.stop(PATIENCE_S)
    assert composite.running() == []


async def answered(composite: Composite, count: int) -> None:
    """Wait until ``count`` children have answered: they have installed their SIGTERM handler by then."""
    await until(lambda: len([child for child in composite.status()["children"] if child["report"]]) == count)


def pids(composite: Composite) -> dict[str, int]:
    return {child["name"]: child["pid"] for child in composite.status()["children"] if child["pid"]}


async def test_composite_is_ready_with_its_proxy_and_one_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unready(tmp_path, "proxy", "websocket-1", "websocket-2")
    async with running(tmp_path, monkeypatch, 2) as composite:
        assert composite.why_not_ready() == "the proxy is not ready"
        unready(tmp_path, "websocket-1", "websocket-2")
        await until(lambda: composite.why_not_ready() == "no pair is ready")
        unready(tmp_path, "websocket-1")
        await until(lambda: composite.why_not_ready() is None)
        assert composite.ready_pairs == 1
        unready(tmp_path)
        await until(lambda: composite.ready_pairs == 2)


async def test_short_variable_of_the_composite_is_none_of_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"DIEM_PORT": "1", "DIEM_PROXY_COMPRESSION": "off", "DIEM_LOG_LEVEL": "error", "DIEM_UPSTREAMS": "9"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    async with running(tmp_path, monkeypatch, 1) as composite:
        found = [composite._spec(child).env for child in composite._children(1)]
    assert found
    for env in found:
        assert {name: env.get(name) for name in given} == given | {"DIEM_PORT": None}


async def test_status_describes_every_child_and_has_the_clients_of_the_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, monkeypatch, 2) as composite:
        await answered(composite, 6)
        status = composite.status()
    assert composite.why_not_ready() == "draining"
    assert [child["name"] for child in status["children"]] == list(child_names(2))
    assert (status["ready"], status["pairs"], status["clients"], status["upstreams"]) == (True, 2, 3, 2)
    assert status["live"] is False
    assert "subscriptions" not in status
    one = status["children"][1]
    assert (one["process"], one["state"], one["restarts"]) == ("bridge", "running", 0)
    assert one["urls"]["internal"].startswith("http://127.0.0.1:1")


async def test_pairs_are_added_and_removed_servers_before_bridges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, monkeypatch, 1) as composite:
        await until(lambda: composite.ready_pairs == 1)
        before = pids(composite)
        composite.scale(3)
        await answered(composite, 8)
        assert composite.ready_pairs == 3
        assert {name: pid for name, pid in pids(composite).items() if name in before} == before
        assert tuple(child["name"] for child in composite.status()["children"]) == child_names(3)
        composite.scale(1)
        await until(lambda: pids(composite) == before)
        gone = stopped(tmp_path)
        assert (set(gone[:2]), set(gone[2:])) == ({"websocket-2", "websocket-3"}, {"bridge-2", "bridge-3"})
        await until(lambda: len(composite.status()["children"]) == 4)


async def test_killed_child_is_restarted_and_its_last_status_does_not_count_until_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, monkeypatch, 1) as composite:
        await until(lambda: composite.why_not_ready() is None)
        before = pids(composite)
        unready(tmp_path, "proxy")
        os.kill(before["proxy"], signal.SIGKILL)
        await until(lambda: composite.why_not_ready() is not None)
        await until(lambda: pids(composite).get("proxy") not in {None, before["proxy"]})
        assert composite.restarts == 1
        unready(tmp_path)
        await until(lambda: composite.why_not_ready() is None)
        assert {**pids(composite), "proxy": 0} == {**before, "proxy": 0}


async def test_failure_of_an_added_pair_does_not_affect_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_WRONG", "bridge-2")
    async with running(tmp_path, monkeypatch, 1) as composite:
        await until(lambda: composite.why_not_ready() is None)
        composite.scale(2)
        await until(lambda: "failed" in states(composite))
        # At once: a child that does not answer for a second is not ready until it is polled again.
        await until(lambda: composite.ready_pairs == 2 and composite.why_not_ready() is None)


def states(composite: Composite) -> list[Any]:
    return [child["state"] for child in composite.status()["children"]]
