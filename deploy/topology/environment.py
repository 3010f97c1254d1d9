"""What each process is told in its environment: where it listens, and where the others are."""

import json
from collections.abc import Mapping

from deploy.topology.model import HOST, Mode, Options, Ports, Slot

_OURS = ["127.0.0.1/32"]
"""Where nginx comes from: its X-Forwarded-For is believed."""


def shared(options: Options) -> dict[str, str]:
    """Return what every process of ours is told."""
    return {
        "DIEM_STATE_DIR": str(options.state_dir),
        "DIEM_INTERNAL_KEY_FILE": str(options.state_dir / "internal.key"),
        "DIEM_LOG_LEVEL": options.log_level,
        "DIEM_LOG_FORMAT": "json",
        "DIEM_DRAIN_SECONDS": str(options.drain_seconds),
        "DIEM_TIME_FACTOR": str(options.time_factor),
        "DIEM_SUPERVISED": "1",
    }


def listeners(slot: Slot, own: Ports) -> dict[str, str]:
    """Return where a process listens."""
    prefix = f"DIEM_{slot.process.upper()}_"
    env = {f"{prefix}INTERNAL_HOST": HOST, f"{prefix}INTERNAL_PORT": str(own.internal)}
    if own.public is not None:
        env |= {f"{prefix}HOST": HOST, f"{prefix}PORT": str(own.public)}
    return env


def data(options: Options, ports: Mapping[str, Ports]) -> dict[str, str]:
    """Return what the Data Service is told of the edge, and in mode x of Kafka."""
    edge = ports["nginx" if options.mode.behind_nginx else "websocket-1"]
    env = {
        "DIEM_DATA_WRITE_KEY_FILE": str(options.state_dir / "write.key"),
        "DIEM_DATA_MODE": str(options.mode),
        "DIEM_DATA_WEBSOCKET_SERVERS": json.dumps([{"port": edge.public, "path": "/ws"}]),
    }
    if options.config is not None:
        env["DIEM_DATA_CONFIG"] = str(options.config)
    if options.mode.behind_nginx:
        env["DIEM_DATA_TRUSTED_PROXIES"] = json.dumps(_OURS)
    return env | kafka(options, ports)


def websocket(options: Options, ports: Mapping[str, Ports], number: int) -> dict[str, str]:
    """Return which feed a WebSocket server reads, and whose pages it takes."""
    feed = {Mode.X_BROADCAST: "broadcast", Mode.X: f"bridge-{number}"}.get(options.mode, "data")
    env = {
        "DIEM_WEBSOCKET_NUMBER": str(number),
        "DIEM_WEBSOCKET_MODE": str(options.mode),
        "DIEM_WEBSOCKET_FEED_URL": feed_url(ports[feed]),
        "DIEM_WEBSOCKET_PAGE_PORT": str(ports["data"].public),
    }
    if options.clients_per_address is not None:
        env["DIEM_WEBSOCKET_CONNECTIONS_PER_ADDRESS"] = str(options.clients_per_address)
    if options.mode.behind_nginx:
        # The page as the Data Service itself serves it is allowed by its port.
        origins = [f"http://{host}:{ports['nginx'].public}" for host in ("localhost", "127.0.0.1", "[::1]")]
        env["DIEM_WEBSOCKET_ORIGINS"] = json.dumps(origins)
        env["DIEM_WEBSOCKET_TRUSTED_PROXIES"] = json.dumps(_OURS)
    return env


def bridge(options: Options, ports: Mapping[str, Ports], number: int) -> dict[str, str]:
    """Return which bridge it is, and where Kafka is."""
    return {"DIEM_BRIDGE_NUMBER": str(number)} | kafka(options, ports)


def broadcast(ports: Mapping[str, Ports]) -> dict[str, str]:
    """Return which feed the Broadcast node reads."""
    return {"DIEM_BROADCAST_FEED_URL": feed_url(ports["data"])}


def kafka(options: Options, ports: Mapping[str, Ports]) -> dict[str, str]:
    """Return where Kafka is and how to speak to it; nothing in the modes without it."""
    if options.mode is not Mode.X:
        return {}
    wanted = options.kafka
    told = {name: getattr(wanted, name) for name in wanted.NAMES} | {
        "bootstrap_servers": wanted.bootstrap_servers or bootstrap_servers(ports),
        # Said, because brokers come up one by one: how many there are at first does not count.
        "replication": wanted.replication or wanted.local_brokers or None,
    }
    return {f"DIEM_KAFKA_{name.upper()}": str(value) for name, value in told.items() if value is not None}


def bootstrap_servers(ports: Mapping[str, Ports]) -> str:
    """Return the brokers that run here, as clients want them."""
    return ",".join(f"{HOST}:{own.public}" for name, own in ports.items() if name.startswith("kafka-"))


def feed_url(ports: Ports) -> str:
    """Return the feed of a process."""
    return f"ws://{HOST}:{ports.internal}/feed"
