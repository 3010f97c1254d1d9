"""The limit of subscriptions of one connection, at a single server and in a group."""

import pytest
from websockets.datastructures import Headers

from diem.fanout.feed_hub import FeedHub
from diem.fanout.ownership import Ownership
from diem.fanout.session import Session
from diem.links.edge import Admission, Admitted, admission_rules
from diem.protocol.messages import MAX_NAMES
from diem.protocol.partition_map import Head, PartitionMap
from services.websocket.settings import GROUP_ALLOWANCE, Settings


@pytest.mark.parametrize(
    ("mode", "held"),
    [("single", 128), ("x", 128), ("all-to-all", 128), ("z-client", 1024), ("z-composite", 1024), ("xz", 1024)],
)
def test_connection_limit_is_eight_times_that_of_a_client_where_servers_share_endpoints(mode: str, held: int) -> None:
    settings = Settings.model_validate({"mode": mode})
    assert settings.connection_subscriptions == held
    assert Settings.model_validate({"mode": mode, "subscriptions": 3}).connection_subscriptions == 3 * held // 128


def test_one_server_accepts_the_subscriptions_that_a_client_held_at_eight_and_no_more() -> None:
    ownership = Ownership()
    ownership.set_map(PartitionMap(Head(1, 0)))
    ownership.set_names(["diem.updates/0"])
    settings = Settings.model_validate({"mode": "z-client", "subscriptions": 5})
    hub = FeedHub(limit=settings.connection_subscriptions, ownership=ownership)
    session = Session(lambda _: None, lambda _: None, hub.fanout.stats)
    hub.fanout.join(session)
    before = {f"/{server}/{number}": 0 for server in range(GROUP_ALLOWANCE) for number in range(5)}
    assert not hub.subscribe(session, before).rejected
    assert {str(why.code) for why in hub.subscribe(session, {"/more": 0}).rejected.values()} == {"limit"}


@pytest.mark.parametrize("mode", ["single", "z-client"])
def test_client_may_subscribe_twice_to_its_limit_at_once(mode: str) -> None:
    settings = Settings.model_validate({"mode": mode})
    outcome = Admission(admission_rules(settings)).admit("127.0.0.1", Headers(), 0.0)[1]
    assert isinstance(outcome, Admitted)
    for _ in range(2):
        for start in range(0, settings.connection_subscriptions, MAX_NAMES):
            assert outcome.allowance.messages.take(0.0)
            outcome.allowance.charge_names(0.0, min(MAX_NAMES, settings.connection_subscriptions - start))
