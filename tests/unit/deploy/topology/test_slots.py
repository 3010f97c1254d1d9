from typing import Any

import pytest

from deploy.topology import AUTO, BadTopology, KafkaTopology, Mode, Sizes, sizes, sizes_of, start_of
from tests.unit.deploy.topology.topologies import KAFKA, SERVED, STATE, options_of


@pytest.mark.parametrize(
    ("mode", "servers", "most", "text"),
    [
        (Mode.SINGLE, 2, None, "single runs one WebSocket server, not 2"),
        (Mode.SINGLE, 1, 4, "single runs one WebSocket server, not 4"),
        (Mode.ALL_TO_ALL, 0, None, "all-to-all runs 1 to 64 WebSocket servers, not 0"),
        (Mode.X_BROADCAST, 65, None, "x-broadcast runs 1 to 64 WebSocket servers, not 65"),
        (Mode.X, 3, 2, "--max-servers is between --servers .3. and 64, not 2"),
        (Mode.X, 3, 65, "--max-servers is between --servers .3. and 64, not 65"),
    ],
)
def test_number_of_servers_must_fit_the_mode(mode: Mode, servers: int, most: int | None, text: str) -> None:
    with pytest.raises(BadTopology, match=text):
        sizes(mode, servers, most)


def test_number_of_brokers_is_one_or_three_where_there_are_any() -> None:
    with pytest.raises(BadTopology, match="1 or 3 brokers, not 2"):
        sizes(Mode.X, 1, None, 2)
    assert sizes(Mode.X_BROADCAST, 1, None, 2).brokers == 0


@pytest.mark.parametrize(("servers", "most"), [(1, 8), (8, 8), (9, 9), (64, 64)])
def test_default_maximum_leaves_room_for_more_servers(servers: int, most: int) -> None:
    assert sizes(Mode.X, servers) == Sizes(servers, most, 0)
    assert sizes(Mode.X, servers, servers).max_servers == servers


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"mode": Mode.X, "clones": 2}, "--clones is for --mode z-client and xz: x has none"),
        ({"mode": Mode.Z_PROXY, "clones": 1}, "--clones is for --mode z-client and xz: z-proxy has none"),
        ({"mode": Mode.SINGLE, "clones": 1}, "--clones is for --mode z-client and xz: single has none"),
        ({"mode": Mode.Z_CLIENT, "clones": 0}, "z-client runs 1 to 64 clones and servers of them, not 0 times 1"),
        ({"mode": Mode.Z_CLIENT, "clones": 65}, "z-client runs 1 to 64 clones and servers of them, not 65 times 1"),
        ({"mode": Mode.Z_CLIENT, "servers": 9, "clones": 8}, "clones and servers of them, not 8 times 9"),
        ({"mode": Mode.Z_CLIENT, "max_servers": 9, "clones": 8}, "--max-servers is between --servers .1. and 8, not 9"),
        ({"mode": Mode.XZ, "clones": 3, "max_servers": 2}, "--max-servers is between --clones .3. and 64, not 2"),
        ({"mode": Mode.XZ, "servers": 65}, "xz runs 1 to 64 WebSocket servers, not 65"),
        ({"mode": Mode.XZ, "kafka": SERVED}, "--topic is for --mode single, x, z-client, z-proxy, not xz"),
        ({"mode": Mode.X, "kafka": KafkaTopology(topic="a")}, "--topic a needs --bootstrap-servers"),
        ({"mode": Mode.Z_PROXY, "kafka": SERVED, "hot": ("/a",)}, "--hot: a key of topic orders is where"),
        ({"mode": Mode.X, "hot": ("/a",)}, "--hot is for partitioned modes: every server of x has every endpoint"),
    ],
)
def test_options_that_do_not_fit_the_mode_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(BadTopology, match=text):
        sizes_of(options_of(state_dir=STATE, **options))


@pytest.mark.parametrize(
    ("clones", "servers", "most"), [(None, 1, 8), (8, 1, 8), (9, 1, 7), (8, 8, 8), (64, 1, 1), (3, 20, 20)]
)
def test_all_servers_of_all_clones_have_slots(clones: int | None, servers: int, most: int) -> None:
    assert sizes(Mode.Z_CLIENT, servers, clones=clones) == Sizes(servers, most, 0, clones or 1)


def test_number_of_brokers_is_checked_in_every_mode_with_kafka() -> None:
    for mode in KAFKA:
        with pytest.raises(BadTopology, match="1 or 3 brokers, not 2"):
            sizes(mode, 1, None, 2)


@pytest.mark.parametrize(
    ("mode", "servers", "cores", "expected"),
    [
        (None, None, 2, (Mode.SINGLE, 1)),
        (None, AUTO, 2, (Mode.SINGLE, 1)),
        (None, None, 3, (Mode.X_BROADCAST, 3)),
        (None, None, 64, (Mode.X_BROADCAST, 16)),
        (None, 1, 8, (Mode.SINGLE, 1)),
        (None, 3, 1, (Mode.X_BROADCAST, 3)),
        (Mode.SINGLE, AUTO, 8, (Mode.SINGLE, 1)),
        (Mode.SINGLE, 2, 8, (Mode.SINGLE, 2)),
        (Mode.X_BROADCAST, None, 1, (Mode.X_BROADCAST, 2)),
        (Mode.X_BROADCAST, None, 8, (Mode.X_BROADCAST, 8)),
        (Mode.X_BROADCAST, AUTO, 1, (Mode.X_BROADCAST, 1)),
        (Mode.X, None, 8, (Mode.X, 2)),
        (Mode.X, AUTO, 8, (Mode.X, 8)),
        (Mode.XZ, AUTO, 8, (Mode.XZ, 4)),
        (Mode.ALL_TO_ALL, None, 8, (Mode.ALL_TO_ALL, 1)),
    ],
)
def test_number_of_servers_follows_from_the_cores_where_none_was_given(
    mode: Mode | None, servers: int | str | None, cores: int, expected: tuple[Mode, int]
) -> None:
    assert start_of(mode, servers, cores) == expected


def test_automatic_number_of_servers_is_within_the_bound_of_scaling_and_clones() -> None:
    assert start_of(None, None, 8, most=3) == (Mode.X_BROADCAST, 3)
    assert start_of(None, None, 8, most=1) == (Mode.SINGLE, 1)
    assert start_of(Mode.Z_CLIENT, AUTO, 8, clones=3) == (Mode.Z_CLIENT, 2)
