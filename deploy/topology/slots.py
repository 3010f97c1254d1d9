"""Process slots of a mode, and the allowed numbers of servers."""

from typing import Final, NamedTuple

from deploy.topology.model import Slot
from deploy.topology.options import Options, Traffic
from deploy.topology.public_address import BadTopology
from diem.process.modes import KINDS, Mode

MAX_SERVERS: Final = 64
DEFAULT_MAX_SERVERS: Final = 8
BROKERS: Final = (1, 3)
CLONES: Final = {Mode.Z_CLIENT: 1, Mode.XZ: 2}
"""Modes with clones, and their default number."""
DEFAULT_SERVERS: Final = {mode: 2 for mode in Mode if mode.uses_kafka} | {Mode.X_BROADCAST: 2}
AUTO: Final = "auto"
"""A server for each core."""
MOST_AUTOMATIC: Final = 16
"""Most servers of ``auto``. They take 160,000 clients, and 0.7 GiB of memory at rest; each wakes for every write."""
_FEW_CORES: Final = 2
"""Cores that the Data Service and one server fill."""


SERVING: Final = (Mode.SINGLE, Mode.X, Mode.Z_CLIENT, Mode.Z_PROXY)
"""Modes that can serve a topic of other programs."""


class Sizes(NamedTuple):
    """Numbers of processes; ``brokers`` counts local ones.

    ``servers`` is the number per clone. ``max_servers`` is the maximum for ``diem scale``: servers per clone, in mode
    xz clones. ``data`` counts the Data Service with its stand-bys.
    """

    servers: int
    max_servers: int
    brokers: int
    clones: int = 1
    data: int = 1
    proxies: int = 1
    balancers: int = 1
    """0: servers share one port."""
    served: bool = False
    """A topic of other programs is served as it is: servers read it through bridges in any mode."""


def start_of(
    mode: Mode | None, servers: int | str | None, cores: int, most: int | None = None, clones: int | None = None
) -> tuple[Mode, int]:
    """Return the mode, and the number of servers of each clone.

    Args:
        mode: None: ``x-broadcast`` for several servers, ``single`` for one.
        servers: a number or :data:`AUTO`, the default of ``x-broadcast`` and of no mode on more cores than two.
        cores: of this machine.
        most: the maximum number of servers for ``diem scale``.
        clones: of modes with clones.
    """
    groups = CLONES.get(mode or Mode.SINGLE, 1) if clones is None else max(1, clones)
    # In mode xz, clones are scaled.
    bound = MAX_SERVERS if most is None or mode is Mode.XZ else most
    automatic = max(1, min(cores // groups, bound, MOST_AUTOMATIC))
    is_small = cores <= _FEW_CORES
    if mode is None:
        count = servers if isinstance(servers, int) else 1 if is_small else automatic
        return Mode.SINGLE if count == 1 else Mode.X_BROADCAST, count
    if mode is Mode.SINGLE:
        return mode, servers if isinstance(servers, int) else 1
    if servers is None and (is_small or mode is not Mode.X_BROADCAST):
        return mode, DEFAULT_SERVERS.get(mode, 1)
    return mode, servers if isinstance(servers, int) else automatic


def sizes_of(options: Options) -> Sizes:
    """Check the options against the mode, and fill in missing numbers.

    Raises:
        BadTopology: the mode does not support a number or an option.
    """
    mode, wanted, brokers = options.mode, options.scaling, options.kafka.local_brokers
    if options.traffic is Traffic.KAFKA and not mode.uses_kafka:
        raise BadTopology(f"--traffic kafka: mode {mode} uses no Kafka; files does")
    if options.content.hot and not mode.partitioned:
        raise BadTopology(f"--hot is for partitioned modes: every server of {mode} has every endpoint")
    served = options.kafka.topic
    if served and mode not in SERVING:
        raise BadTopology(f"--topic is for --mode {', '.join(SERVING)}, not {mode}")
    if served and not options.kafka.bootstrap_servers:
        raise BadTopology(f"--topic {served} needs --bootstrap-servers, the brokers that have it")
    if served and options.content.hot:
        raise BadTopology(f"--hot: a key of topic {served} is where its producers put it")
    found = sizes(mode, wanted.servers, wanted.max_servers, brokers, wanted.clones)
    data = 1 + wanted.standbys
    if mode is Mode.SINGLE:
        # One beside each Data Service, so that clients lose at most half of a pair of hosts.
        found = found._replace(servers=data, max_servers=data)
    return found._replace(data=data, proxies=wanted.proxies, balancers=wanted.balancers, served=bool(served))


def sizes(
    mode: Mode, servers: int = 1, max_servers: int | None = None, brokers: int = 0, clones: int | None = None
) -> Sizes:
    """Check the numbers of processes, and fill in missing ones.

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
    # In mode xz, clones are scaled; in others all servers have slots from the start.
    room = MAX_SERVERS if mode is Mode.XZ else MAX_SERVERS // max(groups, 1)
    if not 1 <= groups <= MAX_SERVERS or servers > room:
        raise BadTopology(f"{mode} runs 1 to {MAX_SERVERS} clones and servers of them, not {groups} times {servers}")
    first, option = (groups, "--clones") if mode is Mode.XZ else (servers, "--servers")
    most = max(first, min(DEFAULT_MAX_SERVERS, room)) if max_servers is None else max_servers
    if not first <= most <= room:
        raise BadTopology(f"--max-servers is between {option} ({first}) and {room}, not {most}")
    return Sizes(servers, most, brokers if mode.uses_kafka else 0, groups)


def slots(mode: Mode, wanted: Sizes) -> tuple[Slot, ...]:
    """Return every possible process of the mode, with documented ports, in display order."""
    of_clones = wanted.clones * wanted.max_servers
    numbers = {
        "kafka": wanted.brokers,
        "data": wanted.data,
        "nginx": wanted.balancers,
        "proxy": wanted.proxies,
        "bridge": of_clones,
        "websocket": of_clones,
        "composite": wanted.max_servers if mode is Mode.XZ else 1,
    }
    before, edge = mode.processes[:-1], mode.processes[-1]
    bridges = () if "bridge" in before or not wanted.served else ("bridge",)
    found = tuple(
        _slot(process, number, wanted.max_servers)
        for process in (*before, *bridges, edge)
        for number in range(1, numbers.get(process, 1) + 1)
    )
    if not mode.behind_nginx or wanted.balancers:
        return found
    shared = KINDS[edge].public
    return tuple(each._replace(public=shared, shares_port=True) if each.process == edge else each for each in found)


def _slot(process: str, number: int, each: int) -> Slot:
    """Return a process; numbers and ports of servers, ``each`` per clone, continue across clones."""
    kind = KINDS[process]
    if not kind.numbered:
        # Of equal processes that may each serve all, the first has no number.
        name = process if number == 1 else f"{process}-{number}"
        return Slot(name, process, 0, kind.stage, kind.public, kind.internal)
    clone, index = divmod(number - 1, each) if process in {"bridge", "websocket"} else (0, number - 1)
    public, internal = (None if port is None else port + number - 1 for port in (kind.public, kind.internal))
    return Slot(f"{process}-{number}", process, index + 1, kind.stage, public, internal, clone + 1)
