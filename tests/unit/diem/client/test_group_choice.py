"""The partitioned client's choice of a group, by the metadata service's own API."""

import random
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from diem.client import PartitionedClient
from diem.links.client_auth import ClientAuth
from diem.process.clock import ManualClock, SystemClock
from diem.process.limits import AddressRateLimiter, RateLimit
from diem.protocol.assignment import STABLE, Clone, Owner, member_id
from diem.protocol.partition_map import Head, PartitionMap
from diem.tokens.verifier import Verifier
from metadata.api import LocateApi
from metadata.directory import Directory
from metadata.locate import OwnerLookup
from tests.support.patience import until
from tests.support.ports import free_port
from tests.support.tokens import NOW, Issuer
from tests.unit.diem.client.fakes import QUICK, Deployment, FakeServer, deployed, seeing
from tests.unit.diem.links.test_http_server import serving

NAMES = [f"/e/{number}" for number in range(8)]


class Clients:
    """Numbers of clients by URL of the server."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self.counts = counts

    def of(self, public: str) -> int | None:
        return self.counts[public]

    def redirected(self, public: str) -> None: ...


def group(*servers: FakeServer) -> Clone:
    members = {member_id(server.port): Owner(member_id(server.port), server.url, server.url) for server in servers}
    return Clone(STABLE, members, dict(enumerate(members)))


def locate_api(
    *groups: Clone, counts: Mapping[str, int], auth: ClientAuth | None = None, is_ready: bool = True
) -> LocateApi:
    directory = Directory([1, 2])
    if is_ready:
        directory.update_map(PartitionMap(Head(4, 0)))
        for number, members in enumerate(groups, 1):
            directory.update_group(number, members, 0, 0.0)
    limit = RateLimit(1000, 1000)
    return LocateApi(
        OwnerLookup(directory, Clients(counts), random.Random(1)),
        lambda origin: origin == "http://127.0.0.1:8080",
        AddressRateLimiter(limit, limit),
        auth or ClientAuth(SystemClock()),
        max_names=1000,
        anonymous="auto" if auth is None else "off",
    )


def client_of(system: Deployment, *ports: int, **options: Any) -> PartitionedClient:
    metadata = [f"http://127.0.0.1:{port}/v1" for port in ports]
    return PartitionedClient(system.urls, metadata=metadata, origin="http://127.0.0.1:8080", timing=QUICK, **options)


@pytest.fixture
async def system() -> AsyncIterator[Deployment]:
    async with deployed() as deployment:
        yield deployment


@pytest.mark.parametrize("clients", [1, 9])
async def test_servers_of_the_group_with_the_fewest_clients_are_asked(system: Deployment, clients: int) -> None:
    counts = {system.a.url: 3, system.b.url: 3, system.c.url: clients}
    api = locate_api(group(system.a, system.b), group(system.c), counts=counts)
    async with serving(api) as port, seeing(client_of(system, port), *NAMES):
        dials = [server.dials for server in system.servers]
        if clients == 1:
            assert dials == [0, 0, 1]
            assert system.c.held == set(NAMES)
        else:
            assert system.c.dials == 0
            assert system.a.held | system.b.held == set(NAMES)


async def test_a_server_that_is_no_url_of_the_client_is_dialled_on_the_host_of_the_metadata_service(
    system: Deployment,
) -> None:
    api = locate_api(group(system.a), group(system.c), counts={system.a.url: 5, system.c.url: 1})
    async with serving(api) as port:
        client = PartitionedClient([system.a.url], metadata=[f"http://127.0.0.1:{port}/v1"], timing=QUICK)
        async with seeing(client, *NAMES):
            assert (system.a.dials, system.c.held) == (0, set(NAMES))


async def test_a_service_that_does_not_answer_or_knows_nothing_yet_is_passed_over(system: Deployment) -> None:
    counts = {system.a.url: 5, system.b.url: 5, system.c.url: 1}
    groups = group(system.a, system.b), group(system.c)
    async with (
        serving(locate_api(*groups, counts=counts, is_ready=False)) as early,
        serving(locate_api(*groups, counts=counts)) as port,
        seeing(client_of(system, early, free_port(), port), *NAMES),
    ):
        assert (system.a.dials, system.b.dials, system.c.dials) == (0, 0, 1)
    async with seeing(client_of(system, free_port()), *NAMES):
        assert system.a.held | system.b.held | system.c.held == set(NAMES)


async def test_when_no_server_of_the_group_is_left_those_of_another_one_are_asked(system: Deployment) -> None:
    counts = {system.a.url: 5, system.b.url: 5, system.c.url: 1}
    api = locate_api(group(system.a, system.b), group(system.c), counts=counts)
    async with serving(api) as port, seeing(client_of(system, port), *NAMES) as seen:
        await system.c.stop()
        await until(lambda: system.a.held | system.b.held == set(NAMES))
        await seen.until_live(*NAMES)


async def test_the_token_is_presented_to_the_metadata_service(system: Deployment) -> None:
    issuer = Issuer()
    auth = ClientAuth(ManualClock(0, int(NOW * 1000)), Verifier([issuer.key]), [])
    counts = {system.a.url: 5, system.b.url: 5, system.c.url: 1}
    api = locate_api(group(system.a, system.b), group(system.c), counts=counts, auth=auth)
    async with serving(api) as port, seeing(client_of(system, port, token=issuer.token), *NAMES):
        assert (system.a.dials, system.b.dials, system.c.held) == (0, 0, set(NAMES))


async def test_without_a_token_no_server_is_dialled_and_the_client_says_why(system: Deployment) -> None:
    def token() -> str:
        raise PermissionError("logged out")

    api = locate_api(group(system.a), group(system.c), counts={system.a.url: 5, system.c.url: 1})
    async with serving(api) as port:
        client = client_of(system, port, token=token)
        async with seeing(client) as seen:
            await client.subscribe({"/a": None})
            await until(lambda: any("logged out" in str(event.message) for event in seen.of("closed")))
    assert sum(server.dials for server in system.servers) == 0


NAMED = replace(QUICK, base_s=0.01, cap_s=60.0)


async def test_a_server_named_while_it_waits_is_dialled_soon_once_in_a_while(
    system: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows: list[float] = []

    def longest(attempt: int, base_s: float, cap_s: float, _rng: object) -> float:
        windows.append(min(cap_s, base_s * 2**attempt))
        return windows[-1]

    monkeypatch.setattr("diem.client.backoff.full_jitter", longest)
    client = PartitionedClient(system.urls[:2], timing=NAMED)
    system.own(a=system.a, b=system.b, c=system.a, d=system.a)
    async with seeing(client, "/a", "/b") as seen:
        await system.a.kick(1012, "retry=60000")
        await until(lambda: windows == [60.0])
        await client.subscribe({"/c": None})
        await seen.until_live("/a", "/c")
        assert (windows, system.a.dials) == ([60.0, 0.01], 2)
        await system.a.kick(1012, "retry=60000")
        await until(lambda: windows == [60.0, 0.01, 60.0])
        await client.subscribe({"/d": None})
        await until(lambda: system.b.subscribed_with("/d") != [])
        await system.b.update("/b", 5)
        await until(lambda: seen.versions("/b") == [5])  # the answer that names the owner has come before
        assert (windows, system.a.dials) == ([60.0, 0.01, 60.0], 2)
