"""Environment of each process: its listeners and the addresses of the others."""

import json
from collections.abc import Mapping

from deploy.topology.model import HOST, Ports, Slot
from deploy.topology.options import Mode, Options, ProxyMode, Traffic
from diem.links import local

_OURS = ["127.0.0.1/32"]
"""Where nginx comes from: its X-Forwarded-For is believed."""


def shared(options: Options) -> dict[str, str]:
    """Return what every process of ours is told."""
    sockets = options.state_dir / "sockets"
    return {
        "DIEM_STATE_DIR": str(options.state_dir),
        # Where paths would be too long for sockets, internal links are TCP.
        **({"DIEM_INTERNAL_SOCKETS": str(sockets)} if local.fits(sockets) else {}),
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


def edge_ports(mode: Mode, ports: Mapping[str, Ports]) -> list[int | None]:
    """Return the ports that clients may dial."""
    if mode.behind_nginx:
        return [ports["nginx"].public]
    return [own.public for name, own in ports.items() if name.startswith(f"{mode.edge}-")]


def data(options: Options, ports: Mapping[str, Ports]) -> dict[str, str]:
    """Return what the Data Service is told of the edge, and of Kafka in the modes that use it."""
    edges = [{"port": port, "path": "/ws"} for port in edge_ports(options.mode, ports)]
    env = {
        "DIEM_DATA_WRITE_KEY_FILE": str(options.state_dir / "write.key"),
        "DIEM_DATA_MODE": str(options.mode),
        "DIEM_DATA_WEBSOCKET_SERVERS": json.dumps(edges),
    }
    if options.mode is Mode.Z_CLIENT:
        env["DIEM_DATA_METADATA_SERVICES"] = json.dumps([{"port": ports["metadata"].public, "path": "/v1"}])
    if options.config is not None:
        env["DIEM_DATA_CONFIG"] = str(options.config)
    if options.mode.behind_nginx:
        env["DIEM_DATA_TRUSTED_PROXIES"] = json.dumps(_OURS)
    if options.hot:
        env["DIEM_DATA_HOT"] = json.dumps(options.hot)
    return env | kafka(options, ports) | traffic(options, ports)


def websocket(options: Options, ports: Mapping[str, Ports], slot: Slot) -> dict[str, str]:
    """Return which feed a WebSocket server reads, and whose pages it takes."""
    has_bridge = options.mode is Mode.X or options.mode.partitioned
    feed = slot.twin("bridge") if has_bridge else "broadcast" if options.mode is Mode.X_BROADCAST else "data"
    return {
        # Names in logs and greetings stay unique over all clones.
        "DIEM_WEBSOCKET_NUMBER": slot.name.removeprefix("websocket-"),
        "DIEM_WEBSOCKET_MODE": str(options.mode),
        "DIEM_WEBSOCKET_FEED_URL": feed_url(ports[feed]),
        **_edge("WEBSOCKET", options, ports),
        **traffic(options, ports),
    }


def bridge(options: Options, ports: Mapping[str, Ports], slot: Slot) -> dict[str, str]:
    """Return which bridge it is, and where Kafka is; for a group also where its server is."""
    env = {"DIEM_BRIDGE_NUMBER": str(slot.number)}
    if options.mode.partitioned:
        server = ports[slot.twin("websocket")]
        env |= {
            "DIEM_BRIDGE_CLONE": str(slot.clone),
            "DIEM_BRIDGE_SERVER_INTERNAL_URL": f"ws://{HOST}:{server.internal}/ws",
            "DIEM_BRIDGE_SERVER_PUBLIC_URL": f"ws://{HOST}:{server.public}/ws",
        }
    return env | kafka(options, ports)


def broadcast(ports: Mapping[str, Ports]) -> dict[str, str]:
    """Return which feed the Broadcast node reads."""
    return {"DIEM_BROADCAST_FEED_URL": feed_url(ports["data"])}


def metadata(options: Options, ports: Mapping[str, Ports]) -> dict[str, str]:
    """Return which groups the metadata service watches, and whose pages may ask it."""
    env = {
        "DIEM_METADATA_CLONES": json.dumps(list(range(1, (options.clones or 1) + 1))),
        **_edge("METADATA", options, ports),
    }
    return env | kafka(options, ports)


def proxy(options: Options, ports: Mapping[str, Ports], slot: Slot) -> dict[str, str]:
    """Return whom a proxy asks for owners, and which servers it may dial: those that may ever run here."""
    servers = [f"{HOST}/32:{own.internal}" for name, own in ports.items() if name.startswith("websocket-")]
    return {
        "DIEM_PROXY_NUMBER": str(slot.number),
        "DIEM_PROXY_MODE": options.proxy or ProxyMode.SHARED,
        "DIEM_PROXY_METADATA_URLS": json.dumps([f"ws://{HOST}:{ports['metadata'].internal}/watch"]),
        "DIEM_PROXY_ALLOWED": json.dumps(servers),
        **_edge("PROXY", options, ports),
        **traffic(options, ports),
    }


def composite(options: Options, ports: Mapping[str, Ports], slot: Slot) -> dict[str, str]:
    """Return which composite it is, what it is made of, and whose pages it takes."""
    return {
        "DIEM_COMPOSITE_NUMBER": str(slot.number),
        "DIEM_COMPOSITE_PAIRS": str(options.servers),
        "DIEM_COMPOSITE_MODE": str(options.mode),
        "DIEM_COMPOSITE_PROXY": options.proxy or ProxyMode.SHARED,
        **_edge("COMPOSITE", options, ports),
        **kafka(options, ports),
        # Its children have these from it.
        **traffic(options, ports),
    }


def traffic(options: Options, ports: Mapping[str, Ports]) -> dict[str, str]:
    """Return where a process records what its clients subscribe to, or what is asked of it."""
    told = {
        "DIEM_TRAFFIC_SINK": str(options.traffic_sink),
        "DIEM_TRAFFIC_DIR": str(options.state_dir / "traffic"),
        "DIEM_TRAFFIC_SALT_FILE": str(options.state_dir / "traffic.salt"),
    }
    return told | (kafka(options, ports) if options.traffic_sink is Traffic.KAFKA else {})


def kafka(options: Options, ports: Mapping[str, Ports]) -> dict[str, str]:
    """Return where Kafka is and how to speak to it; nothing in the modes without it."""
    if not options.mode.uses_kafka:
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


def _edge(process: str, options: Options, ports: Mapping[str, Ports]) -> dict[str, str]:
    """Return whom a process that serves clients lets in."""
    prefix = f"DIEM_{process}_"
    env = {f"{prefix}PAGE_PORT": str(ports["data"].public)}
    if options.clients_per_address is not None:
        env[f"{prefix}CONNECTIONS_PER_ADDRESS"] = str(options.clients_per_address)
    if options.mode.behind_nginx:
        # The page as the Data Service itself serves it is allowed by its port.
        origins = [f"http://{host}:{ports['nginx'].public}" for host in ("localhost", "127.0.0.1", "[::1]")]
        env[f"{prefix}ORIGINS"] = json.dumps(origins)
        env[f"{prefix}TRUSTED_PROXIES"] = json.dumps(_OURS)
    return env
