"""Whatever happens to servers, links, moves and clients of a proxy, nobody is left behind, or with what is void."""

from typing import Any

from hypothesis import example, given

from tests.walks import walk_settings
from tests.walks.proxying import Cluster, Walk, hints, walks


@walk_settings(examples=200)
@given(walk=walks(), named=hints)
@example(
    # The new place of a moving endpoint has a record that nobody can read; its reader loses another partition.
    walk=[
        ("rebalance", 0, 2),
        ("move", "/e/0", 0),
        ("spoil", "/e/0"),
        ("assign", 2, False),
        ("read", 2, 100),
        ("subscribe", 2, {"/e/0", "/e/6", "/e/4"}),
        ("rebalance", 2, 0),
        ("move", "/e/0", 0),
    ],
    named="public",
)
@example(
    # A record that nobody can read, behind an update of the same catch-up; the other name keeps the reply waiting.
    walk=[
        ("subscribe", 1, {"/e/2", "/e/6"}),
        ("rebalance", 0, 1),
        ("tell",),
        ("open", 1),
        ("assign", 1, False),
        ("spoil", "/e/2"),
        ("answer", 1),
    ],
    named="public",
)
def test_every_client_of_a_proxy_is_current_when_all_is_at_rest(walk: list[tuple[Any, ...]], named: str) -> None:
    Walk(Cluster(named), clients=3).run(walk)
