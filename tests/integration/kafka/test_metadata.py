"""The metadata service against a real Kafka, with real members of its groups."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Subprotocol

from diem.kafka.assignment import list_clones, read_assignment, read_group
from diem.kafka.client import admin_client
from diem.kafka.config import KafkaOptions
from diem.kafka.errors import KafkaUnavailable
from diem.kafka.map_writer import write_map
from diem.protocol import assignment
from diem.protocol.partition_map import Entry, Head, encode_entry
from diem.protocol.partitioners import partition_of
from metadata.directory import CloneGroup
from tests.integration.kafka.membership import ORIGIN, Member, Running, members, server, serving
from tests.support.internal import InternalConnect
from tests.support.kafka import broker_stalls, killed
from tests.support.local_cluster import LocalCluster
from tests.support.maps import ensure_map
from tests.support.patience import FACTOR, PATIENCE_S, until
from tests.support.required import in_cluster
from tests.support.stalls import stalls

PARTITIONS = 4
NAMES = [f"/e/{number}" for number in range(40)]


@pytest.fixture
async def options(kafka_options: KafkaOptions) -> KafkaOptions:
    """A system with a map and no group."""
    await ensure_map(kafka_options, PARTITIONS, hot=["/hot"])
    return kafka_options


@contextlib.asynccontextmanager
async def listening(running: Running) -> AsyncIterator[ClientConnection]:
    protocols = [Subprotocol("diem.watch.v1")]
    async with InternalConnect(running.partitions_url, running.key, subprotocols=protocols) as socket:
        yield socket


async def heard(socket: ClientConnection, within: float = PATIENCE_S) -> dict[str, Any]:
    async with asyncio.timeout(within):
        result: dict[str, Any] = orjson.loads(await socket.recv())
        return result


async def owners_among(*having: Member) -> dict[str, str]:
    """The owner of each stream by the members' own assignments, once these are those of the same generation."""
    async with asyncio.timeout(PATIENCE_S):
        # The coordinator's answer to a member may arrive after the same assignment was read by others.
        while sorted(part for each in having for part in each.partitions) != list(range(PARTITIONS)):
            await asyncio.sleep(0.02)
    owner = {part: each.server.public for each in having for part in each.partitions}
    return {name: owner[partition_of(name.encode(), PARTITIONS)] for name in NAMES}


async def stable_in_kafka(options: KafkaOptions, count: int) -> None:
    """Wait until the group is stable with this number of members."""
    async with admin_client(options, PATIENCE_S) as admin:
        while True:
            found = await read_assignment(admin, options.names.z_group(1), options.names.updates)
            if found.state == "stable" and len(found.members) == count:
                return
            await asyncio.sleep(0.05)


async def until_known(running: Running, options: KafkaOptions, count: int) -> float:
    """Wait until this number of members is known; return the seconds that it took, without pauses of the machine."""
    async with stalls() as stalled, broker_stalls(options) as broker:
        return await running.until_stable(count) - stalled.seconds - broker.seconds


async def test_owners_are_those_of_the_members_assignments(options: KafkaOptions, tmp_path: Path) -> None:
    async with members(options, 1, 2) as both, serving(tmp_path, options) as running:
        await running.until_stable(2)
        answer = await running.locate(*NAMES, "/hot", "bad")
        assert {name: answer["endpoints"][name]["owner"] for name in NAMES} == await owners_among(*both)
        assert answer["endpoints"]["/hot"] == {"owner": None, "hot": True}
        assert answer["rejected"]["bad"]["code"] == "bad_name"
        assert sorted(answer["servers"]) == [server(1).public, server(2).public]
        assert (answer["clone"], answer["epoch"]) == (1, 0)
        assert (await running.get("/readyz")).status_code == 200
        measured = (await running.get("/metrics")).text
        assert 'diem_clone_members{clone="1"} 2.0' in measured
        assert 'diem_clone_partitions_owned{clone="1"} 4.0' in measured
        assert 'diem_http_requests_total{method="POST",status="200"} 1.0' in measured


async def test_new_owners_are_known_within_two_seconds_of_the_group_being_stable(
    options: KafkaOptions, tmp_path: Path
) -> None:
    async with members(options, 1) as [first], serving(tmp_path, options) as running:
        await running.until_stable(1)
        second = Member(options, 2)
        await second.join()
        await stable_in_kafka(options, 2)
        assert await until_known(running, options, 2) < 2 * FACTOR
        assert await running.owners(*NAMES) == await owners_among(first, second)
        await second.leave()
        await stable_in_kafka(options, 1)
        assert await until_known(running, options, 1) < 2 * FACTOR
        assert await running.owners(*NAMES) == await owners_among(first)


@in_cluster("it waits for a rebalance")
async def test_a_member_that_is_killed_is_replaced_when_its_session_is_over(
    options: KafkaOptions, tmp_path: Path
) -> None:
    async with serving(tmp_path, options) as running, members(options, 1, static=True) as [stays]:
        dies = Member(options, 2, static=True)
        await dies.join()
        await running.until_stable(2)
        before = await running.owners(*NAMES)
        await dies.leave()  # says nothing to Kafka, as a process that is killed
        await running.until_stable(1)
        assert set((await running.owners(*NAMES)).values()) == {stays.server.public}
        assert set(before.values()) == {stays.server.public, dies.server.public}


async def test_during_a_rebalance_the_last_assignment_is_served(options: KafkaOptions, tmp_path: Path) -> None:
    async with serving(tmp_path, options) as running, members(options, 1, static=True):
        silent = Member(options, 2, static=True)
        await silent.join()
        await running.until_stable(2)
        before = await running.owners(*NAMES)
        await silent.leave()
        # The group waits for the one that says nothing until its session is over.
        joining = asyncio.create_task((third := Member(options, 3, static=True)).join())
        await running.until_status(lambda status: status["clones"]["1"]["state"] == "rebalancing")
        assert await running.owners(*NAMES) == before
        assert (await running.get("/v1/partitions")).json()["clones"]["1"]["state"] == "rebalancing"
        await joining
        await running.until_status(lambda status: status["clones"]["1"]["members"] == ["b001", "b003"])
        await third.leave()


@in_cluster("it kills its broker")
async def test_without_kafka_answers_continue_and_are_not_live_and_a_question_is_one_error(
    own_broker: LocalCluster, own_broker_options: KafkaOptions, tmp_path: Path
) -> None:
    options = replace(own_broker_options, partitions=PARTITIONS)
    await ensure_map(options, PARTITIONS)
    async with (
        members(options, 1, 2),
        serving(tmp_path, options) as running,
        admin_client(options, None) as admin,
    ):
        await running.until_stable(2)
        before = await running.owners(*NAMES)
        async with killed(own_broker):
            with pytest.raises(KafkaUnavailable, match="group g"):
                await read_group(admin, "g", "t")
            await running.until_status(lambda status: not status["live"])
            status = await running.status()
            assert status["ready"]
            assert status["failure"]
            assert status["kafka_silence_seconds"] >= 10
            assert await running.owners(*NAMES) == before
        await running.until_status(lambda status: status["live"] and status["failure"] is None)


async def test_a_clone_is_chosen_once_and_kept(options: KafkaOptions, tmp_path: Path) -> None:
    async with (
        members(options, 1, 2, clone=1),
        members(options, 3, clone=2),
        serving(tmp_path, options, clones=3) as running,
    ):
        await running.until_stable(2, clone=1)
        await running.until_stable(1, clone=2)
        chosen = {(await running.locate("/e/1"))["clone"] for _ in range(30)}
        assert chosen == {1, 2}, "equals are chosen by chance, and one that has no servers never"
        for clone in (1, 2):
            for _ in range(5):
                answer = await running.locate("/e/1", clone=clone)
                assert answer["clone"] == clone
                assert len(answer["servers"]) == (2 if clone == 1 else 1)
        assert (await running.locate("/e/1", clone=3))["clone"] in (1, 2)


@in_cluster("it waits for a rebalance")
async def test_several_instances_agree_and_the_end_of_one_does_not_affect_clients_of_the_other(
    options: KafkaOptions, tmp_path: Path
) -> None:
    async with members(options, 1, 2), serving(tmp_path, options) as stays:
        async with serving(tmp_path, options) as ends:
            await stays.until_stable(2)
            await ends.until_stable(2)
            one, other = await stays.locate(*NAMES, "/hot"), await ends.locate(*NAMES, "/hot")
            assert one["endpoints"] == other["endpoints"]
            assert sorted(one["servers"]) == sorted(other["servers"])
            assert (await stays.get("/v1/partitions")).json() == (await ends.get("/v1/partitions")).json()
        assert (await stays.locate(*NAMES, "/hot"))["endpoints"] == one["endpoints"]


async def test_proxies_get_every_change_with_internal_urls(options: KafkaOptions, tmp_path: Path) -> None:
    async with members(options, 1) as [first], serving(tmp_path, options) as running:
        await running.until_stable(1)
        async with listening(running) as socket:
            snapshot = assignment.decode(orjson.dumps(await heard(socket)))
            assert snapshot.owner(b"/e/1", 1) == first.server
            assert snapshot.is_hot(b"/hot")
            assert snapshot == assignment.decode((await running.get("/v1/partitions")).content)
            async with members(options, 2):
                async with asyncio.timeout(PATIENCE_S):
                    while len(snapshot.clones[1].members) < 2:
                        snapshot = assignment.decode(orjson.dumps(await heard(socket)))
            assert set(snapshot.clones[1].owners.values()) == {"b001", "b002"}
            await write_map(options, {NAMES[0].encode(): encode_entry(Entry(-1))}, Head(PARTITIONS, 1))
            async with asyncio.timeout(PATIENCE_S):
                while snapshot.map.head.epoch < 1:
                    snapshot = assignment.decode(orjson.dumps(await heard(socket)))
            assert snapshot.is_hot(NAMES[0].encode())


async def test_the_internal_watch_needs_the_key(options: KafkaOptions, tmp_path: Path) -> None:
    async with members(options, 1), serving(tmp_path, options) as running:
        await running.until_stable(1)
        with pytest.raises(InvalidStatus) as refused:
            await connect(running.partitions_url, proxy=None, subprotocols=[Subprotocol("diem.watch.v1")])
        assert refused.value.response.status_code == 401


async def test_internal_urls_are_on_the_internal_listener_only(options: KafkaOptions, tmp_path: Path) -> None:
    async with members(options, 1) as [first], serving(tmp_path, options) as running:
        await running.until_stable(1)
        assert first.server.internal not in (await running.ask("/e/1")).text
        async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as http:
            answer = await http.get(f"http://127.0.0.1:{running.settings.port}/v1/partitions")
        assert answer.status_code == 404


async def test_without_a_map_the_status_has_the_reason(kafka_options: KafkaOptions, tmp_path: Path) -> None:
    async with serving(tmp_path, kafka_options) as running:
        missing = f"topic {kafka_options.names.partition_map} does not exist"
        await running.until_status(lambda status: status["live"] and status["failure"] == missing)
        assert (await running.get("/readyz")).text == "the partition map has not been read yet\n"


async def test_before_the_first_assignment_there_is_no_answer(options: KafkaOptions, tmp_path: Path) -> None:
    async with serving(tmp_path, options) as running:
        answer = await running.ask("/e/1")
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert (await running.get("/readyz")).status_code == 503
        await running.until_status(lambda status: status["live"])
        assert not (await running.status())["ready"]


@in_cluster("it waits for a rebalance")
async def test_foreign_members_are_counted_and_own_nothing(options: KafkaOptions, tmp_path: Path) -> None:
    async with members(options, 1) as [ours], members(options, 2, named="somebody else"):
        await stable_in_kafka(options, 1)
        async with admin_client(options) as admin:
            found = await read_group(admin, options.names.z_group(1), options.names.updates)
            assert await list_clones(admin, options.names) == {1}
        assert found.foreign == 1
        assert found.clone.members == {"b001": ours.server}
        # Its own copy may be a moment older.
        await until(lambda: set(found.clone.owners) == ours.partitions)
        async with serving(tmp_path, options) as running:
            await running.until_stable(1)
            told = await running.owners(*NAMES)
            assert set(told.values()) == {ours.server.public, None}
            assert (await running.status())["clones"]["1"]["foreign"] == 1


async def test_a_group_without_members_is_unknown(options: KafkaOptions) -> None:
    async with admin_client(options) as admin:
        found = await read_assignment(admin, "t.nobody", options.names.updates)
    assert found == CloneGroup().clone


async def test_kafka_keeps_the_first_client_id_of_a_static_member(options: KafkaOptions) -> None:
    """The reason why bridges with other URLs leave and join again after a restart: otherwise nobody learns of them."""
    group, topic = options.names.z_group(1), options.names.updates
    first = Member(options, 1, static=True)
    await first.join()
    await first.leave()
    again = Member(options, 1, static=True, named="b001|ws://other/ws|ws://another/ws")
    await again.join()
    async with admin_client(options, PATIENCE_S) as admin:
        found = await read_assignment(admin, group, topic)
    await again.leave()
    assert found.members == {"b001": first.server}


async def test_requests_of_allowed_origins_are_accepted_and_others_refused(
    options: KafkaOptions, tmp_path: Path
) -> None:
    async with members(options, 1), serving(tmp_path, options) as running:
        await running.until_stable(1)
        answer = await running.ask("/e/1", Origin=ORIGIN)
        assert answer.status_code == 200
        assert answer.headers["Access-Control-Allow-Origin"] == ORIGIN
        assert (await running.ask("/e/1", Origin="http://evil.test")).status_code == 403
