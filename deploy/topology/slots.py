"""Which processes a mode has, and how many servers it may have."""

from typing import Final, NamedTuple

from deploy.topology.model import BadTopology, Mode, Slot, Stage

MAX_SERVERS: Final = 64
DEFAULT_MAX_SERVERS: Final = 8
BROKERS: Final = (1, 3)


class Sizes(NamedTuple):
    """How many of each there are; `brokers` are those that run here."""

    servers: int
    max_servers: int
    brokers: int


def sizes(mode: Mode, servers: int = 1, max_servers: int | None = None, brokers: int = 0) -> Sizes:
    """Check how many processes are asked for, and fill in what is not said.

    Raises:
        BadTopology: the mode does not have that many.
    """
    if not mode.behind_nginx:
        if servers != 1 or max_servers not in {None, 1}:
            asked = servers if servers != 1 else max_servers
            raise BadTopology(f"{mode} runs one WebSocket server, not {asked}: use --mode x-broadcast for more")
        return Sizes(1, 1, 0)
    if not 1 <= servers <= MAX_SERVERS:
        raise BadTopology(f"{mode} runs 1 to {MAX_SERVERS} WebSocket servers, not {servers}")
    most = max(servers, DEFAULT_MAX_SERVERS) if max_servers is None else max_servers
    if not servers <= most <= MAX_SERVERS:
        raise BadTopology(f"--max-servers is between --servers ({servers}) and {MAX_SERVERS}, not {most}")
    if mode is not Mode.X:
        return Sizes(servers, most, 0)
    if brokers not in {0, *BROKERS}:
        raise BadTopology(f"a local Kafka has 1 or 3 brokers, not {brokers}")
    return Sizes(servers, most, brokers)


def slots(mode: Mode, wanted: Sizes) -> tuple[Slot, ...]:
    """Return every process that the mode may ever run, with documented ports, in the order in which they are shown."""
    numbers = range(1, wanted.max_servers + 1)
    brokers = range(1, wanted.brokers + 1)
    found = [Slot(f"kafka-{n}", "kafka", n, Stage.KAFKA, 9091 + n, 9095 + n) for n in brokers]
    found.append(Slot("data", "data", 0, Stage.DATA, 8080, 9080))
    if mode is Mode.X_BROADCAST:
        found.append(Slot("broadcast", "broadcast", 0, Stage.BROADCAST, None, 9300))
    if mode is Mode.X:
        found += [Slot(f"bridge-{n}", "bridge", n, Stage.BRIDGE, None, 9200 + n) for n in numbers]
    if mode.behind_nginx:
        found.append(Slot("nginx", "nginx", 0, Stage.NGINX, 8000, None))
    found += [Slot(f"websocket-{n}", "websocket", n, Stage.WEBSOCKET, 8100 + n, 9100 + n) for n in numbers]
    return tuple(found)
