"""The faults of the convergence runs, by name."""

from collections.abc import Mapping
from typing import Final

from tests.load.injection import groups, kafka, links
from tests.load.injection.attack import ATTACK, attacked
from tests.load.injection.drain import DRAIN, drained
from tests.load.injection.expiry import EXPIRY, expiring
from tests.load.injection.links import FEED, UPSTREAM
from tests.load.injection.log_cut import LOG_CUTS
from tests.load.injection.poison import poison
from tests.load.injection.processes import hang, kill, rescale, wipe
from tests.load.injection.repartition import REPARTITIONS
from tests.load.injection.scene import Inject, Scene
from tests.load.injection.traffic_plan import LEARNED, learned_plan
from tests.load.injection.upgrade import ROLLBACK, UPGRADE, rolled_back, upgraded
from tests.oracle.history import WIPE

__all__ = [
    "ATTACK",
    "CUTS",
    "DRAIN",
    "EXPIRY",
    "FAULTS",
    "LEARNED",
    "MODES",
    "ONE_BROKER",
    "PARTITIONED",
    "REPARTITIONS",
    "ROLLBACK",
    "THREE_BROKERS",
    "UPGRADE",
    "UPSTREAM_CUTS",
    "Inject",
    "Scene",
    "faults_of",
]

FAULTS: Final[Mapping[str, Inject]] = {
    "kill-websocket": kill("kill-websocket", "websocket-1"),
    "hang-websocket": hang("hang-websocket", "websocket-2"),
    "kill-broadcast": kill("kill-broadcast", "broadcast"),
    "kill-bridge": kill("kill-bridge", "bridge-1"),
    "kill-nginx": kill("kill-nginx", "nginx"),
    "kill-data": kill("kill-data", "data"),
    WIPE: wipe,
    "cut-reset": links.reset("cut-reset", FEED),
    "cut-black-hole": links.black_hole("cut-black-hole", FEED),
    "upstream-reset": links.reset("upstream-reset", UPSTREAM),
    "upstream-black-hole": links.black_hole("upstream-black-hole", UPSTREAM),
    "add-server": rescale("add-server", +1),
    "remove-server": rescale("remove-server", -1),
    "server-down": groups.down("server-down", "websocket-1"),
    "server-up": groups.up("server-up", "server-down"),
    "pair-down": groups.down("pair-down", "websocket-2", "bridge-2"),
    "pair-up": groups.up("pair-up", "pair-down"),
    "stop-server": groups.stop_server,
    "joins": groups.scaled("joins", +1),
    "leaves": groups.scaled("leaves", -1),
    "rebalance-storm": groups.storm,
    "metadata-down": groups.metadata_down,
    "kill-proxy": kill("kill-proxy", "proxy"),
    "kill-composite": kill("kill-composite", "composite-1"),
    "poison": poison,
    "recreate-topic": kafka.recreate_topic,
    "kill-controller": kafka.kill_controller,
    "kill-broker": kafka.kill_leader,
    "stop-broker": kafka.stop_leader,
    "all-brokers-down": kafka.all_down,
    **LOG_CUTS,
    **REPARTITIONS,
    LEARNED: learned_plan,
    ATTACK: attacked,
    EXPIRY: expiring,
    DRAIN: drained,
    UPGRADE: upgraded,
    ROLLBACK: rolled_back,
}
"""Every fault by name; each returns when the affected part is back in service."""

CUTS: Final = frozenset({"cut-reset", "cut-black-hole"})
"""They need the relay before the feed."""
UPSTREAM_CUTS: Final = frozenset({"upstream-reset", "upstream-black-hole"})
"""They need the relay before the server."""
MODES: Final = ("single", "x-broadcast", "all-to-all", "x", "z-client", "z-proxy", "z-composite", "xz")
_CUT: Final = ("upstream-reset", "cut-reset", "cut-black-hole", "upstream-black-hole")
# Clients that have lost connections to a process within the last minute wait longer before they dial it again.
_GROUP: Final = ("joins", "leaves", "pair-down", "pair-up", "rebalance-storm", "metadata-down")
_SERVER: Final = ("server-down", "server-up")
PARTITIONED: Final[Mapping[str, tuple[str, ...]]] = {
    "z-client": ("kill-bridge", *LOG_CUTS, *_CUT, *_GROUP, *_SERVER),
    "z-proxy": ("kill-bridge", *_CUT, *_GROUP, *_SERVER, "kill-proxy"),
    "z-composite": ("kill-proxy", "kill-bridge", "stop-server", *_GROUP, *_SERVER, "kill-composite"),
    "xz": ("kill-proxy", "kill-bridge", "stop-server", *_GROUP, *_SERVER, "kill-composite"),
}
"""The faults of the modes in which servers share out the endpoints; that of a broker needs three."""
ONE_BROKER: Final = (
    "kill-bridge",
    "cut-reset",
    "cut-black-hole",
    "kill-data",
    "poison",
    "recreate-topic",
    *LOG_CUTS,
    WIPE,
    # Not before the faults of the first bridge: the clients of the first server do not come back to it by themselves.
    "kill-websocket",
    "hang-websocket",
    "add-server",
    "remove-server",
)
"""The faults of mode x that need no second broker, in an order that leaves clients where the next one hits them."""
# The first controller is known by its log only until another one takes its place.
THREE_BROKERS: Final = ("kill-controller", "kill-broker", "stop-broker", "all-brokers-down")


def faults_of(mode: str) -> list[str]:
    """The faults that a mode without Kafka can have."""
    found = ["kill-websocket", "kill-data", WIPE]
    match mode:
        case "x-broadcast":
            return [*found, "kill-broadcast", "hang-websocket", "add-server", "remove-server"]
        case "all-to-all":
            return [*found, "kill-nginx"]
    return found
