"""Process slots of a mode, and the allowed numbers of servers."""

from typing import Final, NamedTuple

from deploy.topology.model import Slot, StopStage
from deploy.topology.options import Mode, Options, Traffic
from deploy.topology.public_address import BadTopology

MAX_SERVERS: Final = 64
DEFAULT_MAX_SERVERS: Final = 8
BROKERS: Final = (1, 3)
CLONES: Final = {Mode.Z_CLIENT: 1, Mode.XZ: 2}
"""Modes with clones, and their default number."""


class Sizes(NamedTuple):
    """Numbers of processes; ``brokers`` are those that run here.

    ``servers`` is the number in each clone. ``max_servers`` is the greatest number for ``diem scale``: servers of each
    clone, in mode xz clones. ``data`` counts the Data Service with its stand-bys.
    """

    servers: int
    max_servers: int
    brokers: int
    clones: int = 1
    data: int = 1
    proxies: int = 1
    balancers: int = 1


def sizes_of(options: Options) -> Sizes:
    """Check the options against the mode, and fill in the numbers that are not given.

    Raises:
        BadTopology: the mode does not support a number or an option.
    """
    mode = options.mode
    if options.proxy is not None and mode.edge == "websocket":
        raise BadTopology(f"--proxy is for --mode {_modes_with('proxy', 'composite')}: {mode} has no proxy")
    if options.traffic is Traffic.KAFKA and not mode.uses_kafka:
        raise BadTopology(f"--traffic kafka: mode {mode} uses no Kafka; files does")
    if options.hot and not mode.partitioned:
        raise BadTopology(f"--hot is for partitioned modes: every server of {mode} has every endpoint")
    found = sizes(options.mode, options.servers, options.max_servers, options.kafka.local_brokers, options.clones)
    if mode is Mode.SINGLE:
        # One beside each Data Service, so that clients lose no more than half of a pair of hosts.
        found = found._replace(servers=1 + options.standbys, max_servers=1 + options.standbys)
    return found._replace(data=1 + options.standbys, proxies=options.proxies, balancers=options.balancers)


def sizes(
    mode: Mode, servers: int = 1, max_servers: int | None = None, brokers: int = 0, clones: int | None = None
) -> Sizes:
    """Check the numbers of processes, and fill in those that are not given.

    Raises:
        BadTopology: the mode does not support a number.
    """
    if clones is not None and mode not in CLONES:
        raise BadTopology(f"--clones is for --mode {' and '.join(CLONES)}: {mode} has none")
    if mode is Mode.SINGLE:
        if servers != 1 or max_servers not in {None, 1}:
            requested = servers if servers != 1 else max_servers
            raise BadTopology(f"{mode} runs one WebSocket server, not {requested}: use --mode x-broadcast for more")
        return Sizes(1, 1, 0)
    if not 1 <= servers <= MAX_SERVERS:
        raise BadTopology(f"{mode} runs 1 to {MAX_SERVERS} WebSocket servers, not {servers}")
    if mode.uses_kafka and brokers not in {0, *BROKERS}:
        raise BadTopology(f"a local Kafka has 1 or 3 brokers, not {brokers}")
    groups = CLONES.get(mode, 1) if clones is None else clones
    # In mode xz the clones are scaled; in the others all servers have slots from the start.
    room = MAX_SERVERS if mode is Mode.XZ else MAX_SERVERS // max(groups, 1)
    if not 1 <= groups <= MAX_SERVERS or servers > room:
        raise BadTopology(f"{mode} runs 1 to {MAX_SERVERS} clones and servers of them, not {groups} times {servers}")
    first, option = (groups, "--clones") if mode is Mode.XZ else (servers, "--servers")
    most = max(first, min(DEFAULT_MAX_SERVERS, room)) if max_servers is None else max_servers
    if not first <= most <= room:
        raise BadTopology(f"--max-servers is between {option} ({first}) and {room}, not {most}")
    return Sizes(servers, most, brokers if mode.uses_kafka else 0, groups)


def slots(mode: Mode, wanted: Sizes) -> tuple[Slot, ...]:
    """Return every process that the mode may ever run, with documented ports, in display order."""
    brokers = range(1, wanted.brokers + 1)
    found = [Slot(f"kafka-{n}", "kafka", n, StopStage.KAFKA, 9091 + n, 9095 + n) for n in brokers]
    found += [Slot(name, "data", 0, StopStage.DATA, 8080, 9080) for name in _replicas("data", wanted.data)]
    if mode is Mode.X_BROADCAST:
        found.append(Slot("broadcast", "broadcast", 0, StopStage.BROADCAST, None, 9300))
    if mode in {Mode.Z_CLIENT, Mode.Z_PROXY}:
        found.append(Slot("metadata", "metadata", 0, StopStage.METADATA, 8400, 9400))
    if mode is Mode.X or (mode.partitioned and mode.edge != "composite"):
        found += _slots_of_clones(wanted, "bridge", StopStage.BRIDGE, None, 9200)
    if mode.behind_nginx:
        balancers = _replicas("nginx", wanted.balancers)
        found += [Slot(name, "nginx", 0, StopStage.NGINX, 8000, None) for name in balancers]
    if mode.edge == "composite":
        composites = range(1, (wanted.max_servers if mode is Mode.XZ else 1) + 1)
        found += [Slot(f"composite-{n}", "composite", n, StopStage.EDGE, 8600 + n, 9600 + n) for n in composites]
    else:
        found += _slots_of_clones(wanted, "websocket", StopStage.WEBSOCKET, 8100, 9100)
    if mode.edge == "proxy":
        proxies = range(1, wanted.proxies + 1)
        found += [Slot(f"proxy-{n}", "proxy", n, StopStage.EDGE, 8500 + n, 9500 + n) for n in proxies]
    return tuple(found)


def _modes_with(*edges: str) -> str:
    return ", ".join(mode for mode in Mode if mode.edge in edges)


def _replicas(process: str, number: int) -> list[str]:
    """Return the names of equal processes, each of which may serve all: the first has no number."""
    return [process, *(f"{process}-{n}" for n in range(2, number + 1))]


def _slots_of_clones(wanted: Sizes, process: str, stage: StopStage, public: int | None, internal: int) -> list[Slot]:
    """Return the processes of all clones; the number in names and ports continues from clone to clone."""
    found = []
    for clone in range(1, wanted.clones + 1):
        for number in range(1, wanted.max_servers + 1):
            slot = (clone - 1) * wanted.max_servers + number
            port = None if public is None else public + slot
            found.append(Slot(f"{process}-{slot}", process, number, stage, port, internal + slot, clone))
    return found
