"""``diem config MODE --hosts``: what it writes runs on three hosts, and loses no update when one is cut off."""

import asyncio
import os
import signal
from pathlib import Path
from time import monotonic
from typing import Final

import pytest

from tests.integration.deploy.machines import CLIENTS, EVERY_MODE, LABELS, Ends, loaded
from tests.oracle import Bounds, Fault
from tests.support.kafka import SharedBroker, options_on
from tests.support.nginx import needs_nginx
from tests.support.patience import FACTOR, until
from tests.support.postgres import Cluster

SERVING: Final = '"event":"serving"'
"""In the log of a Data Service that has the store."""
CUT_S: Final = 20.0
BOUNDS: Final = Bounds(5.0 * FACTOR, 15.0 * FACTOR)
ELSEWHERE_S: Final = 15.0 * FACTOR
"""Clients whose server is cut off behind nginx are connected to another one within this time."""
ENDS: Final = {
    "x": Ends(8000, ((1, 8000),), frozenset({"websocket-2"})),
    "xz": Ends(8000, ((1, 8000),), frozenset({"composite-2", "proxy-2"}), "server connected"),
    "z-proxy": Ends(8080, ((1, 8501),), frozenset({"proxy-1"})),
    "x-broadcast": Ends(8000, ((1, 8000),), frozenset({"websocket-2"})),
}


@needs_nginx
@pytest.mark.parametrize("mode", ["x", "xz", "z-proxy"])
async def test_no_update_is_lost_while_a_host_is_cut_off(tmp_path: Path, kafka: SharedBroker, mode: str) -> None:
    if EVERY_MODE not in os.environ:
        pytest.skip(f"it takes a minute: make hosts ({EVERY_MODE})")
    # The broker of the tests is known by an address of this machine.
    broker = int(kafka.bootstrap_servers.rpartition(":")[2])
    async with loaded(tmp_path, mode, ENDS[mode], [broker], *options_on(kafka)) as system:
        clients = system.clients
        away = [client for client in clients if client.server in ENDS[mode].servers]
        assert len(away) == CLIENTS if mode == "z-proxy" else 0 < len(away) < CLIENTS
        async with system.network.cut(system.hosts[2].namespace):
            start = monotonic()
            await asyncio.sleep(CUT_S)
        end = monotonic()
        await system.check(
            BOUNDS, ([client for client in clients if client not in away], []), (away, [Fault("link", "c", start, end)])
        )
        if mode != "z-proxy":  # Proxies keep their clients, and find another server for them.
            opened = [[event.time - start for event in client.events() if event.kind == "open"] for client in away]
            assert all(any(0 < time < ELSEWHERE_S for time in times) for times in opened), opened
        assert any(change.time > start + CUT_S / 2 for change in system.writer.accepted), "nothing changed meanwhile"
    assert [line for machine in system.hosts for line in machine.failures] == []


@needs_nginx
async def test_stand_by_of_another_host_takes_over_without_a_lost_update(tmp_path: Path, postgres: Cluster) -> None:
    if EVERY_MODE not in os.environ:
        pytest.skip(f"this is tested by make hosts ({EVERY_MODE})")
    database = postgres.new_database()
    store = ("--standby", "b", "--database-url", postgres.url(database))
    async with loaded(tmp_path, "x-broadcast", ENDS["x-broadcast"], [postgres.port], *store) as system:
        # Whichever host was faster has the store.
        serving = [log for log in (tmp_path / "a.log", tmp_path / "b.log") if SERVING in log.read_text()]
        (active,) = [number for number, label in enumerate(LABELS[:2]) if serving == [tmp_path / f"{label}.log"]]
        other = tmp_path / f"{LABELS[1 - active]}.log"
        unit, host = ("diem@data.service", "diem@data-2.service")[active], system.hosts[active]
        assert host.starts(unit) == 1
        start, before = monotonic(), len(system.writer.accepted)
        await host.kill(unit, signal.SIGKILL)
        await until(lambda: SERVING in other.read_text())
        await until(lambda: len(system.writer.accepted) > before)
        await until(lambda: host.starts(unit) == 2)
        end = monotonic()
        await system.check(BOUNDS, (system.clients, [Fault("kill", "data", start, end)]))
    failures = [line for machine in system.hosts for line in machine.failures]
    assert failures == [f"exit {unit} -9"]
    postgres.empty(database)
