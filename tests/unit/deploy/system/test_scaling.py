import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from deploy.system import scaling as module
from deploy.system.control import CommandRefused, ControlFailed, serve
from deploy.system.scaling import Scaler, scale
from deploy.system.state_dir import StateDir
from deploy.topology import KafkaTopology, Mode, Planned, Ports, Programs, Topology, compose, sizes, slots
from diem.links.internal import InternalListener
from diem.process.auth import SharedKey
from diem.process.supervisor import ChildEvent, Spec, Supervisor
from services.composite.control import PATH, ControlChannel
from tests.support.patience import PATIENCE_S, until
from tests.unit.deploy.topology.topologies import options_of

CLONED = (Mode.Z_CLIENT, sizes(Mode.Z_CLIENT, clones=2))


def topology(mode: Mode) -> Topology:
    ports = {slot.name: Ports(slot.public, slot.internal) for slot in slots(mode, sizes(mode, 1, None))}
    kafka = KafkaTopology(bootstrap_servers="elsewhere:9092")
    return compose(options_of(mode, Path("/state"), kafka=kafka), ports, Programs(("diem",)))


def idle(process: Planned) -> Spec:
    return Spec(process.name, ("/bin/sh", "-c", "exec cat"), os.environ, stage=process.stage)


@asynccontextmanager
async def scaled(mode: Mode, servers: int) -> AsyncIterator[tuple[Scaler, Supervisor, list[ChildEvent]]]:
    events: list[ChildEvent] = []
    planned = topology(mode)
    supervisor = Supervisor(map(idle, planned.active(servers)), on_event=events.append)
    scaler = Scaler(planned, servers, supervisor, idle, 5)
    supervisor.start()
    task = asyncio.create_task(scaler.run())
    try:
        yield scaler, supervisor, events
    finally:
        task.cancel()
        await asyncio.wait({task})
        await supervisor.stop(5)


async def until_running(supervisor: Supervisor, names: list[str]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while sorted(s.name for s in supervisor.status() if s.pid) != sorted(names):
            await asyncio.sleep(0.01)


async def test_new_servers_start_with_their_bridges_and_others_are_not_affected() -> None:
    async with scaled(Mode.X, 1) as (scaler, supervisor, events):
        await until_running(supervisor, ["data", "bridge-1", "nginx", "websocket-1"])
        answer = scaler.request(3)
        names = ["data", "bridge-1", "bridge-2", "bridge-3", "nginx", "websocket-1", "websocket-2", "websocket-3"]
        assert answer == {"before": 1, "servers": 3, "processes": names}
        await until_running(supervisor, names)
        assert {event.kind for event in events} == {"started"}


async def test_highest_servers_stop_together_and_then_their_bridges() -> None:
    async with scaled(Mode.X, 3) as (scaler, supervisor, events):
        await until_running(supervisor, [p.name for p in topology(Mode.X).active(3)])
        scaler.request(1)
        await until_running(supervisor, ["data", "bridge-1", "nginx", "websocket-1"])
        async with asyncio.timeout(PATIENCE_S):
            while len(supervisor.status()) > 4:
                await asyncio.sleep(0.01)
        stopped = [event.name for event in events if event.kind == "stopped"]
        assert (set(stopped[:2]), set(stopped[2:])) == ({"websocket-2", "websocket-3"}, {"bridge-2", "bridge-3"})


async def test_last_of_several_requests_counts() -> None:
    async with scaled(Mode.X_BROADCAST, 2) as (scaler, supervisor, _):
        for servers in (4, 1, 3):
            scaler.request(servers)
        await until_running(supervisor, ["data", "broadcast", "nginx", "websocket-1", "websocket-2", "websocket-3"])
        assert scaler.servers == 3


@pytest.mark.parametrize("mode", [Mode.Z_CLIENT, Mode.Z_PROXY])
async def test_pairs_of_a_group_are_scaled_and_others_are_not_affected(mode: Mode) -> None:
    async with scaled(mode, 1) as (scaler, supervisor, events):
        one, three = ([p.name for p in topology(mode).active(n)] for n in (1, 3))
        await until_running(supervisor, one)
        assert scaler.request(3)["processes"] == three
        await until_running(supervisor, three)
        scaler.request(1)
        await until_running(supervisor, one)
        stopped = [event.name for event in events if event.kind == "stopped"]
        assert (set(stopped[:2]), set(stopped[2:])) == ({"websocket-2", "websocket-3"}, {"bridge-2", "bridge-3"})


async def test_pairs_are_added_to_every_clone() -> None:
    ports = {slot.name: Ports(slot.public, slot.internal) for slot in slots(*CLONED)}
    kafka = KafkaTopology(bootstrap_servers="elsewhere:9092")
    planned = compose(options_of(Mode.Z_CLIENT, Path("/state"), clones=2, kafka=kafka), ports, Programs(("diem",)))
    answer = Scaler(planned, 1, Supervisor([]), idle, 5).request(2)
    numbers = [1, 2, 9, 10]
    names = ["data", "metadata", *(f"bridge-{k}" for k in numbers), *(f"websocket-{k}" for k in numbers)]
    assert answer == {"before": 1, "servers": 2, "processes": names}


async def test_a_change_is_reported_when_the_removed_processes_are_forgotten() -> None:
    planned = topology(Mode.X)
    supervisor = Supervisor(map(idle, planned.active(2)))
    names = list[set[str]]()
    applied = asyncio.Event()

    def on_applied() -> None:
        names.append({status.name for status in supervisor.status()})
        applied.set()

    scaler = Scaler(planned, 2, supervisor, idle, 5, on_applied=on_applied)
    supervisor.start()
    task = asyncio.create_task(scaler.run())
    try:
        scaler.request(1)
        async with asyncio.timeout(PATIENCE_S):
            await applied.wait()
        assert names == [{"data", "bridge-1", "nginx", "websocket-1"}]
    finally:
        task.cancel()
        await asyncio.wait({task})
        await supervisor.stop(5)


async def test_scale_changes_the_number_of_composites_in_xz() -> None:
    async with scaled(Mode.XZ, 2) as (scaler, supervisor, _):
        await until_running(supervisor, ["data", "nginx", "composite-1", "composite-2"])
        assert "composite-3/websocket-1" in scaler.request(3)["processes"]
        await until_running(supervisor, ["data", "nginx", "composite-1", "composite-2", "composite-3"])
        with pytest.raises(CommandRefused, match="cannot run 9 composites: the limit is 8"):
            scaler.request(9)


async def test_number_of_pairs_is_sent_on_every_connection_to_a_composite(tmp_path: Path) -> None:
    key = SharedKey.create(tmp_path / "key")
    scaler = Scaler(topology(Mode.Z_COMPOSITE), 2, Supervisor([]), idle, 5)
    sent: list[int] = [1]
    control = ControlChannel(lambda: sent[-1], sent.append, 64)
    listener = InternalListener("127.0.0.1", 0, key=key, ready=lambda: None, status=dict, channels={PATH: control})
    listener.start()
    keeping = asyncio.create_task(module.drive_composite(f"http://127.0.0.1:{listener.port}", key, scaler))
    try:
        await until(lambda: sent == [1, 2])
        assert "composite-1/websocket-5" in scaler.request(5)["processes"]
        await until(lambda: sent == [1, 2, 5])
        for link in list(control._links):
            link.abort()  # as a composite that is killed does
        await until(lambda: sent == [1, 2, 5, 5])
    finally:
        keeping.cancel()
        await asyncio.wait({keeping})
        listener.stop()


@pytest.mark.parametrize("servers", [0, 9, -1, None, "2", 2.0, True])
async def test_number_above_the_maximum_is_refused(servers: object) -> None:
    scaler = Scaler(topology(Mode.X), 1, Supervisor([]), idle, 5)
    with pytest.raises(CommandRefused, match=r"^cannot run .* servers: (the limit is 8 \(|give a number from 1 to 8)"):
        scaler.request(servers)
    assert scaler.servers == 1


async def test_single_refuses_to_be_scaled() -> None:
    with pytest.raises(CommandRefused, match="single runs one WebSocket server: x-broadcast runs more"):
        Scaler(topology(Mode.SINGLE), 1, Supervisor([]), idle, 5).request(1)


class Fake:
    """A `diem up` whose processes become as requested, one with each status request."""

    def __init__(self, *names: str, stuck: bool = False) -> None:
        self.names = list(names)
        self.servers = 1
        self.stuck = stuck

    async def scale(self, request: dict[str, Any]) -> dict[str, Any]:
        self.servers = request["servers"]
        wanted = [f"websocket-{n}" for n in range(1, self.servers + 1)]
        return {"before": len(self.names), "servers": self.servers, "processes": wanted}

    async def status(self, _request: dict[str, Any]) -> dict[str, Any]:
        processes = [{"name": name, "report": {"ready": True}} for name in self.names]
        if not self.stuck and len(self.names) != self.servers:
            self.names = [
                f"websocket-{n}" for n in range(1, len(self.names) + (1 if len(self.names) < self.servers else -1) + 1)
            ]
        return {"servers": self.servers, "processes": processes}


class FakeComposite(Fake):
    """A `diem up` with a composite, whose children become ready like the processes of `Fake`."""

    async def scale(self, request: dict[str, Any]) -> dict[str, Any]:
        answer = await super().scale(request)
        return answer | {"processes": ["composite-1", *(f"composite-1/{name}" for name in answer["processes"])]}

    async def status(self, request: dict[str, Any]) -> dict[str, Any]:
        status = await super().status(request)
        report = {"ready": True, "children": status["processes"]}
        return status | {"processes": [{"name": "composite-1", "report": report}]}


async def scale_of(tmp_path: Path, fake: Fake, servers: int, within_s: float = PATIENCE_S) -> list[tuple[int, int]]:
    shown: list[tuple[int, int]] = []
    state = StateDir(tmp_path)
    async with serve(state, {"scale": fake.scale, "status": fake.status}):
        await scale(state, servers, lambda done, total: shown.append((done, total)), within_s)
    return shown


async def test_scale_waits_until_all_processes_are_as_requested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "POLL_S", 0.0)
    assert await scale_of(tmp_path, Fake("websocket-1"), 3) == [(1, 3), (2, 3), (3, 3)]
    down = Fake("websocket-1", "websocket-2", "websocket-3")
    assert await scale_of(tmp_path, down, 1) == [(1, 3), (1, 2), (1, 1)]


async def test_scale_waits_for_the_pairs_of_a_composite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_S", 0.0)
    assert await scale_of(tmp_path, FakeComposite("websocket-1"), 3) == [(2, 4), (3, 4), (4, 4)]


async def test_scale_names_late_processes(tmp_path: Path) -> None:
    with pytest.raises(ControlFailed, match=r"not done after 0 s: websocket-2, websocket-3$"):
        await scale_of(tmp_path, Fake("websocket-1", stuck=True), 3, 0.0)


async def test_scale_fails_when_another_command_requests_another_number(tmp_path: Path) -> None:
    class Contested(Fake):
        async def status(self, request: dict[str, Any]) -> dict[str, Any]:
            return {**await super().status(request), "servers": 7}

    with pytest.raises(ControlFailed, match="another command requested 7 servers"):
        await scale_of(tmp_path, Contested("websocket-1"), 3)
