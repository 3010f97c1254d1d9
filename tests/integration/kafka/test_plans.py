"""Plans applied by the metadata service in a real Kafka, with the publisher that follows them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from diem.kafka import map_reader
from diem.kafka.client import admin_client, connected_client
from diem.kafka.config import KafkaOptions
from diem.kafka.map_reader import read_map
from diem.kafka.metadata import describe
from diem.protocol.partition_map import HOT, PartitionMap, Phase
from diem.protocol.partitioners import partition_of
from metadata.plans.migration_driver import MigrationDriver
from metadata.plans.plan import Plan, encode
from services.data.publisher import session
from tests.integration.kafka.membership import Running, members, serving
from tests.support.internal import http_client
from tests.support.maps import ensure_map
from tests.support.patience import PATIENCE_S, until
from tests.support.published import MemoryStore, places, publishing
from tests.support.topics import delete_records

PARTITIONS = 4
NAMES = [f"/e/{number}" for number in range(12)]
HOLD = 0.3


@pytest.fixture
async def options(kafka_options: KafkaOptions) -> KafkaOptions:
    await ensure_map(kafka_options, PARTITIONS)
    return replace(kafka_options, partitions=None)


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore()
    store.put(*NAMES)
    return store


class Hold:
    """How long the phase lasts in which clients move: until the test sets ``seconds``, longer than it takes itself."""

    def __init__(self) -> None:
        self.seconds = 600.0


@pytest.fixture
def hold(monkeypatch: pytest.MonkeyPatch) -> Hold:
    """Return what all metadata services of the test hold the phase for, whatever their settings are."""
    made = Hold()
    monkeypatch.setattr(MigrationDriver, "_move_s", property(lambda _: made.seconds, lambda _, __: None), raising=False)
    return made


def rotated(partitions: int = PARTITIONS, *, epoch: int = 0) -> Plan:
    """A plan that moves every endpoint to the next partition, and makes the last one hot."""
    homes = {name: (partition_of(name.encode(), PARTITIONS) + 1) % partitions for name in NAMES} | {NAMES[-1]: HOT}
    return Plan(epoch=epoch, partitions=partitions, homes=homes)


async def ask(running: Running, method: str, path: str, body: bytes | None = None) -> Any:
    async with http_client(running.key) as http:
        url = f"http://127.0.0.1:{running.settings.internal_port}/v1/plans{path}"
        return await http.request(method, url, content=body)


async def done(running: Running, plan: Plan, state: str, within: float = PATIENCE_S) -> None:
    async with asyncio.timeout(within):
        while (await ask(running, "GET", f"/{plan.id}")).json()["state"] != state:
            await asyncio.sleep(0.05)


async def homes(options: KafkaOptions) -> dict[str, int]:
    map_ = await read_map(options)
    assert map_ is not None
    return {name: map_.home(name.encode()) for name in NAMES}


def by_hash() -> Mapping[str, int]:
    return {name: partition_of(name.encode(), PARTITIONS) for name in NAMES}


async def test_a_plan_is_applied_and_rolled_back(options: KafkaOptions, store: MemoryStore, tmp_path: Path) -> None:
    plan = rotated()
    async with (
        publishing(store, options) as publisher,
        members(options, 1),
        serving(tmp_path, options, move_seconds=HOLD, plans_dir=tmp_path / "plans") as running,
    ):
        await running.until_stable(1)
        await until(lambda: publisher.publishing)
        submitted = await ask(running, "POST", "", encode(plan))
        assert (submitted.status_code, submitted.json()["state"]) == (201, "ready")
        applied = await ask(running, "POST", f"/{plan.id}/apply")
        assert (applied.status_code, applied.json()["state"], applied.json()["moves"]) == (202, "preparing", 12)
        await done(running, plan, "applied")
        assert await homes(options) == plan.homes
        for name in NAMES:
            assert list(await places(options, name)) == [plan.homes[name]], "nothing is left where it was"
        answer = await running.locate(*NAMES)
        assert answer["epoch"] == 4
        assert answer["endpoints"][NAMES[-1]] == {"owner": None, "hot": True}
        assert "diem_map_moving_endpoints 0.0" in (await running.get("/metrics")).text

        back = await ask(running, "POST", f"/{plan.id}/rollback")
        assert (back.status_code, back.json()["state"], back.json()["moves"]) == (202, "rolling_back", 12)
        await done(running, plan, "rolled_back")
        assert await homes(options) == by_hash()
        for name in NAMES:
            assert list(await places(options, name)) == [by_hash()[name]]
        map_ = await read_map(options)
        assert map_ is not None
        assert not map_.entries, "the hash has them again"


async def test_unpublished_names_are_removed_from_the_map(
    options: KafkaOptions, store: MemoryStore, tmp_path: Path
) -> None:
    invented = {
        f"/invented/{number}": (partition_of(b"/invented/%d" % number, PARTITIONS) + 1) % PARTITIONS
        for number in range(20)
    }
    plan = replace(rotated(), homes={**rotated().homes, **invented})
    async with (
        publishing(store, options) as publisher,
        members(options, 1),
        serving(tmp_path, options, move_seconds=HOLD, plans_dir=tmp_path / "plans") as running,
    ):
        await running.until_stable(1)
        await until(lambda: publisher.publishing)
        await ask(running, "POST", "", encode(plan))
        assert (await ask(running, "POST", f"/{plan.id}/apply")).json()["moves"] == 32
        await done(running, plan, "applied")
        map_ = await read_map(options)
        assert map_ is not None
        assert map_.entries.keys() == {name.encode() for name in NAMES}
        assert await homes(options) == rotated().homes


async def test_a_topic_gets_the_partitions_that_a_plan_needs(
    options: KafkaOptions, store: MemoryStore, tmp_path: Path
) -> None:
    plan = rotated()
    plan = replace(plan, partitions=7, homes={**plan.homes, NAMES[0]: 6, NAMES[1]: 5, NAMES[2]: 4})
    async with (
        publishing(store, options) as publisher,
        members(options, 1, learns_ms=8000),
        serving(tmp_path, options, move_seconds=HOLD, plans_dir=tmp_path / "plans") as running,
    ):
        await running.until_stable(1)
        await until(lambda: publisher.publishing)
        await ask(running, "POST", "", encode(plan))
        assert (await ask(running, "POST", f"/{plan.id}/apply")).status_code == 202

        # What was written just now has perhaps not been read yet.
        await running.until_status(lambda status: status["phase"] == "prepare")

        def waits_for_owners(status: dict[str, Any]) -> bool:
            assert status["phase"] == "prepare", "nobody is sent to a partition that nobody has"
            return "clone 1 to take partitions 4, 5, 6" in (status["waiting_for"] or "")

        await running.until_status(waits_for_owners)
        await done(running, plan, "applied")
        assert list(await places(options, NAMES[0])) == [6]
        assert (await homes(options))[NAMES[0]] == 6


@pytest.mark.parametrize("phase", [Phase.PREPARE, Phase.MOVE, Phase.RETIRE])
async def test_a_service_that_dies_in_any_phase_is_succeeded_by_one_that_continues(
    options: KafkaOptions, store: MemoryStore, tmp_path: Path, phase: Phase, hold: Hold
) -> None:
    plan = rotated()
    async with AsyncExitStack() as publisher:
        # Without the publisher's acknowledgement the phase lasts until it is there.
        if phase is not Phase.PREPARE:
            await publisher.enter_async_context(publishing(store, options))
        settings: dict[str, Any] = {"plans_dir": tmp_path / "plans"}
        async with members(options, 1), serving(tmp_path, options, **settings) as running:
            await running.until_stable(1)
            await ask(running, "POST", "", encode(plan))
            await ask(running, "POST", f"/{plan.id}/apply")
            if phase is Phase.RETIRE:
                await running.until_status(lambda status: status["phase"] == "move")
                await publisher.aclose()
                hold.seconds = HOLD
            await running.until_status(lambda status: status["phase"] == str(phase))
        if phase is not Phase.MOVE:
            await publisher.enter_async_context(publishing(store, options))
        hold.seconds = HOLD
        async with members(options, 1), serving(tmp_path, options, **settings) as running:
            await done(running, plan, "applied")
            assert await homes(options) == plan.homes


@pytest.mark.parametrize("phase", [Phase.PREPARE, Phase.MOVE])
async def test_a_plan_in_progress_is_rolled_back_from_its_phase(
    options: KafkaOptions, store: MemoryStore, tmp_path: Path, phase: Phase, hold: Hold
) -> None:
    plan = rotated()
    async with AsyncExitStack() as publisher:
        publish = publishing(store, options)
        if phase is not Phase.PREPARE:
            await publisher.enter_async_context(publish)
        async with (
            members(options, 1),
            serving(tmp_path, options, plans_dir=tmp_path / "plans") as running,
        ):
            await running.until_stable(1)
            await ask(running, "POST", "", encode(plan))
            await ask(running, "POST", f"/{plan.id}/apply")
            await running.until_status(lambda status: status["phase"] == str(phase))
            back = await ask(running, "POST", f"/{plan.id}/rollback")
            expected = "retire" if phase is Phase.PREPARE else "move"
            assert (back.status_code, back.json()["state"], back.json()["phase"]) == (202, "rolling_back", expected)
            assert back.json()["moves"] == 12
            hold.seconds = HOLD
            if phase is Phase.PREPARE:
                await publisher.enter_async_context(publish)
            await done(running, plan, "rolled_back")
            assert await homes(options) == by_hash()
            for name in NAMES:
                assert list(await places(options, name)) == [by_hash()[name]]


async def delete_all_records(options: KafkaOptions) -> None:
    await delete_records(options, options.names.partition_map)


async def recreate(options: KafkaOptions) -> None:
    """Delete the topic; the publisher creates it again."""
    name = options.names.partition_map
    async with admin_client(options) as admin, connected_client(options) as client, asyncio.timeout(PATIENCE_S):
        before = (await describe(client, name)).topics[name].id
        await admin.delete_topics([name])
        while not (found := (await describe(client, name)).topics.get(name)) or found.id == before:
            await asyncio.sleep(0.05)


@pytest.fixture
def checked_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The publisher and readers of the map look more often at the topic, which nothing depends on."""
    monkeypatch.setattr(map_reader, "CHECK_EVERY_S", 0.2)
    monkeypatch.setattr(session, "TOPIC_CHECK_EVERY_S", 0.2)


@pytest.mark.usefixtures("checked_often")
@pytest.mark.parametrize("fault", [delete_all_records, recreate])
async def test_a_plan_in_progress_is_applied_though_its_log_is_lost(
    options: KafkaOptions,
    store: MemoryStore,
    tmp_path: Path,
    hold: Hold,
    fault: Callable[[KafkaOptions], Awaitable[None]],
) -> None:
    """The topic alone says how far a plan has come, so the publisher writes it again as it was."""
    plan = rotated()
    async with (
        publishing(store, options) as publisher,
        members(options, 1),
        serving(tmp_path, options, plans_dir=tmp_path / "plans") as running,
    ):
        await running.until_stable(1)
        await until(lambda: publisher.publishing)
        await ask(running, "POST", "", encode(plan))
        await ask(running, "POST", f"/{plan.id}/apply")
        await running.until_status(lambda status: status["phase"] == "move")
        await fault(options)
        async with asyncio.timeout(PATIENCE_S):
            while (map_ := await read_map(options)) is None:
                await asyncio.sleep(0.05)
        assert (map_.head.phase, map_.head.plan, len(map_.entries)) == (Phase.MOVE, plan.id, len(NAMES))
        hold.seconds = HOLD
        await done(running, plan, "applied")
        assert await homes(options) == plan.homes
        for name in NAMES:
            assert list(await places(options, name)) == [plan.homes[name]]


async def test_two_instances_drive_one_move_together(options: KafkaOptions, store: MemoryStore, tmp_path: Path) -> None:
    plan = rotated()
    settings: dict[str, Any] = {"move_seconds": HOLD, "plans_dir": tmp_path / "plans"}
    async with (
        publishing(store, options),
        members(options, 1),
        serving(tmp_path, options, **settings) as first,
        serving(tmp_path, options, **settings) as second,
    ):
        await first.until_stable(1)
        await second.until_stable(1)
        await ask(first, "POST", "", encode(plan))
        assert (await ask(second, "POST", f"/{plan.id}/apply")).status_code == 202
        await done(first, plan, "applied")
        await done(second, plan, "applied")
        map_ = await read_map(options)
        assert isinstance(map_, PartitionMap)
        assert map_.head.epoch == 4, "every step was taken once"


async def test_invalid_plans_are_refused_with_the_reason(options: KafkaOptions, tmp_path: Path) -> None:
    plan = rotated()
    async with (
        members(options, 1),
        serving(tmp_path, options, move_seconds=HOLD, plans_dir=tmp_path / "plans") as running,
    ):
        await running.until_stable(1)
        async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as http:
            url = f"http://127.0.0.1:{running.settings.internal_port}/v1/plans"
            assert (await http.get(url, headers={"Authorization": running.key.header})).status_code == 401
        assert (await ask(running, "POST", "", b"{}")).status_code == 422
        late = await ask(running, "POST", "", encode(rotated(epoch=9)))
        assert (late.status_code, late.json()["code"]) == (409, "conflict")
        assert "epoch 9" in late.json()["detail"]
        for path in ("/p-no", "/p-no/report"):
            assert (await ask(running, "GET", path)).status_code == 404
        assert (await ask(running, "POST", "/p-no/apply")).status_code == 404
        await ask(running, "POST", "", encode(plan))
        assert [each["id"] for each in (await ask(running, "GET", "")).json()["plans"]] == [plan.id]
        assert (await ask(running, "POST", f"/{plan.id}/rollback")).status_code == 409
        await ask(running, "POST", f"/{plan.id}/apply")
        await running.until_status(lambda status: status["phase"] == "prepare")
        other = replace(rotated(epoch=1), seed=1)
        await ask(running, "POST", "", encode(other))
        second = await ask(running, "POST", f"/{other.id}/apply")
        assert (second.status_code, second.json()["detail"]) == (409, f"{plan.id} is in progress (prepare)")
        status = (await ask(running, "GET", f"/{plan.id}")).json()
        assert "publisher" in status["waiting_for"], "nobody publishes here"
        assert (await running.get("/v1/partitions")).status_code == 200, "all else is answered as before"
