"""Compose the topology of a mode: every process with its command line, addresses and environment; pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import Final
from urllib.parse import urlsplit

from deploy.topology.access import READS
from deploy.topology.kafka_users import KafkaUser, directory_of
from deploy.topology.model import HOST, SCALED, Planned, Ports, Readiness, Slot, Topology
from deploy.topology.options import Mode, Options, ProxyMode, Traffic, check_settings
from deploy.topology.public_address import BadTopology, PublicAddress
from deploy.topology.slots import CLONES, sizes_of, slots
from diem.links import unix_sockets
from diem.process import environment
from diem.process.listeners import is_of_this_machine

LOCALHOST: Final = "localhost"
_RESOLVED = frozenset({"websocket", "proxy", "composite"})
"""Processes whose public listener accepts clients."""


@dataclass(frozen=True, slots=True)
class Programs:
    """Command lines: ``diem`` for our processes, ``others`` for brokers and nginx, by name."""

    diem: tuple[str, ...]
    others: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def compose(options: Options, ports: Mapping[str, Ports], programs: Programs) -> Topology:
    """Describe every process of the mode, including those that only ``diem scale`` starts.

    Raises:
        BadTopology: the options do not fit the mode, or a setting is for an unknown process.
    """
    mode = options.mode
    size = sizes_of(options)
    wanted = slots(mode, size)
    check_settings(options.settings, [slot.name for slot in wanted])
    page = _client_address(ports["nginx" if mode.behind_nginx else "data"], options)
    metadata = [ports["metadata"]] if mode is Mode.Z_CLIENT else []
    secure = "s" if options.public.certificate else ""
    return Topology(
        mode=mode,
        processes=tuple(_plan(slot, options, ports, programs) for slot in wanted),
        servers=size.clones if mode is Mode.XZ else size.servers,
        max_servers=size.max_servers,
        clones=size.clones,
        pairs=size.servers if mode.edge == "composite" else 0,
        page_url=f"http{secure}://{page}/",
        rest_url=f"http{secure}://{page}/v1",
        websocket_urls=tuple(f"ws{secure}://{_client_address(own, options)}/ws" for own in _edges(mode, ports)),
        metadata_urls=tuple(f"http{secure}://{_client_address(own, options)}/v1" for own in metadata),
        public=options.public,
    )


def overridden(topology: Topology, environ: Mapping[str, str]) -> list[str]:
    """Return the variables of the environment that the topology overrides, which would be ignored silently.

    Those of Kafka are options of ``diem up`` in the modes that use it, and have no effect in the others.
    """
    planned = {name: value for process in topology.processes for name, value in process.env.items()}
    own = {"DIEM_STATE_DIR", "DIEM_LOG_LEVEL", "DIEM_DRAIN_SECONDS", "DIEM_TIME_FACTOR"}
    # Keys are added to those of the Data Service, origins to those of the page.
    own |= {name for name in planned if name.endswith(("_TOKEN_KEYS", "_ORIGINS"))}
    ignored = {name for name in planned if name not in own and environ.get(name, planned[name]) != planned[name]}
    if not topology.mode.uses_kafka:
        ignored |= {name for name in environ if name.startswith("DIEM_KAFKA_")}
    return sorted(ignored)


def _plan(slot: Slot, options: Options, ports: Mapping[str, Ports], programs: Programs) -> Planned:
    own = ports[slot.name]
    foreign = programs.others.get(slot.name)
    return Planned(
        name=slot.name,
        process=slot.process,
        number=slot.number,
        stage=slot.stage,
        argv=foreign or (*programs.diem, "run", slot.process),
        env=_environment(slot, options, ports) | dict(options.settings.get(slot.name, {})),
        ports=own,
        public_url=_public_url(slot, own, options),
        internal_url=f"http://{own.internal_address}" if _readiness(slot) is Readiness.READYZ else None,
        readiness=_readiness(slot),
        sweep=slot.process == "nginx",  # its workers survive it, and hold the port
        reloads=options.public.certificate is not None and _is_public(slot.process, options.mode),
        clone=_clone(slot, options.mode),
    )


def _clone(slot: Slot, mode: Mode) -> int | None:
    if mode not in CLONES or slot.process not in SCALED:
        return None
    return slot.number if slot.process == "composite" else slot.clone


def _environment(slot: Slot, options: Options, ports: Mapping[str, Ports]) -> dict[str, str]:
    match slot.process:
        case "data":
            own = _data(options, ports)
        case "broadcast":
            own = {"DIEM_BROADCAST_FEED_URL": environment.feed_urls(_all("data", ports))}
        case "bridge":
            own = _bridge(options, ports, slot)
        case "websocket":
            own = _websocket(options, ports, slot)
        case "metadata":
            own = _metadata(options, ports, slot)
        case "proxy":
            own = _proxy(options, ports, slot)
        case "composite":
            own = _composite(options, ports, slot)
        case _:
            return {}
    behind = ports[slot.name].host if options.mode.behind_nginx else HOST
    host = options.public.listen if _is_public(slot.process, options.mode) else behind
    if slot.process == "data" and host == HOST and options.is_local and not options.mode.behind_nginx:
        host = LOCALHOST  # at both loopback addresses, as the page's URL has the name
    listeners = environment.listeners(slot.process, ports[slot.name], host)
    return shared(options) | listeners | _certificate(slot.process, options) | own


def _is_public(process: str, mode: Mode) -> bool:
    """Return whether clients connect to processes of this kind themselves, not through others."""
    if mode.behind_nginx:
        return process == "nginx"
    return process in {"data", mode.edge} or (process == "metadata" and mode is Mode.Z_CLIENT)


def _certificate(process: str, options: Options) -> dict[str, str]:
    """Return the settings with the certificate of a public listener."""
    if options.public.certificate is None or not _is_public(process, options.mode):
        return {}
    files = {"CERTIFICATE": options.public.certificate, "KEY": options.public.key}
    return {f"DIEM_{process.upper()}_TLS_{name}": str(file) for name, file in files.items() if file is not None}


def _readiness(slot: Slot) -> Readiness:
    return {"nginx": Readiness.HTTP, "kafka": Readiness.CONNECT}.get(slot.process, Readiness.READYZ)


def _public_url(slot: Slot, own: Ports, options: Options) -> str | None:
    if own.public is None or slot.process == "kafka":
        return None
    public = options.public if _is_public(slot.process, options.mode) else PublicAddress()
    at = f"{'s' if public.certificate else ''}://{_client_address(own, options, public)}"
    return f"ws{at}/ws" if slot.process in _RESOLVED else f"http{at}/"


def shared(options: Options) -> dict[str, str]:
    """Return the variables that all our processes have."""
    sockets = options.state_dir / "sockets"
    return {
        "DIEM_STATE_DIR": str(options.state_dir),
        # If the paths are too long for sockets, internal links use TCP, and so do those between addresses of hosts.
        **({"DIEM_INTERNAL_SOCKETS": str(sockets)} if options.is_local and unix_sockets.fits(sockets) else {}),
        "DIEM_INTERNAL_KEY_FILE": str(options.state_dir / "internal.key"),
        "DIEM_LOG_LEVEL": options.log_level,
        "DIEM_LOG_FORMAT": "json",
        "DIEM_DRAIN_SECONDS": str(options.drain_seconds),
        "DIEM_TIME_FACTOR": str(options.time_factor),
        # With supervision by DIEM on this machine; of one port for health, the first process would take it for all.
        **({"DIEM_SUPERVISED": "1", "DIEM_HEALTH_PORT": ""} if options.is_local else {}),
    }


def _all(process: str, ports: Mapping[str, Ports]) -> list[Ports]:
    """Return the ports of all processes of a kind."""
    return [own for name, own in ports.items() if name == process or name.startswith(f"{process}-")]


def _edges(mode: Mode, ports: Mapping[str, Ports]) -> list[Ports]:
    """Return the processes to which clients may connect."""
    return [ports["nginx"]] if mode.behind_nginx else _all(mode.edge, ports)


def _client_address(own: Ports, options: Options, public: PublicAddress | None = None) -> str:
    """Return the host and the port by which a client connects."""
    return f"{own.name or (public or options.public).connect}:{own.public}"


def _location(own: Ports, scheme: str, path: str, options: Options) -> dict[str, object]:
    """Return where pages find a process: at a port of their own address, or at a URL of another host."""
    if own.name is None or options.mode.behind_nginx:
        return {"port": own.public, "path": path}
    # A front proxy with TLS passes the port on.
    is_secure = options.public.certificate or any(each.startswith("https:") for each in options.public.own_origins)
    secure = "s" if is_secure else ""
    return {"url": f"{scheme}{secure}://{_client_address(own, options)}{path}"}


def _data(options: Options, ports: Mapping[str, Ports]) -> dict[str, str]:
    edges = [_location(own, "ws", "/ws", options) for own in _edges(options.mode, ports)]
    if options.front_proxies and options.public.own_origins and len(edges) == 1:
        # Clients connect to the front proxy, which passes /ws on.
        edges = [{"url": f"ws{options.public.own_origins[0].removeprefix('http')}/ws"}]
    env = {
        "DIEM_DATA_WRITE_KEY_FILE": str(options.state_dir / "write.key"),
        "DIEM_DATA_MODE": str(options.mode),
        "DIEM_DATA_WEBSOCKET_SERVERS": json.dumps(edges),
    }
    if options.mode is Mode.Z_CLIENT:
        env["DIEM_DATA_METADATA_SERVICES"] = json.dumps([_location(ports["metadata"], "http", "/v1", options)])
    if options.config is not None:
        env["DIEM_DATA_CONFIG"] = str(options.config)
    if options.pages is not None:
        env["DIEM_DATA_OWN_PAGES"] = str(options.pages)
    env |= _trusted_proxies("DATA", options, ports)
    env |= _reads(options)
    if options.standbys:
        # The first one as well: when it comes back, another one has the store.
        env["DIEM_DATA_STANDBY"] = "true"
    if hosts := options.public.hosts:
        env["DIEM_DATA_HOSTS"] = json.dumps(hosts)
    # The same as the servers', whose refusals it explains.
    env["DIEM_DATA_CLIENT_ORIGINS"] = json.dumps(_client_origins(options, ports))
    if readers := _reading_origins(options):
        env["DIEM_DATA_CORS_ORIGINS"] = json.dumps(readers)
    if options.operator_url is not None:
        env["DIEM_DATA_OPERATOR_URL"] = options.operator_url
    if options.hot:
        env["DIEM_DATA_HOT"] = json.dumps(options.hot)
    return env | _kafka(options, ports, KafkaUser.DATA) | _traffic(options, ports, KafkaUser.DATA)


def _reads(options: Options) -> dict[str, str]:
    """Return the setting that decides which readers need a key, where the environment of the command does not."""
    if options.front_proxies and options.access.anonymous_reads == "auto":
        return {READS: "off"}
    reads = options.access.anonymous_reads
    return {READS: reads} if reads == "off" or not options.is_local else {}


def _websocket(options: Options, ports: Mapping[str, Ports], slot: Slot) -> dict[str, str]:
    has_bridge = options.mode is Mode.X or options.mode.partitioned
    feed = slot.twin("bridge") if has_bridge else "broadcast" if options.mode is Mode.X_BROADCAST else "data"
    feeds = _all("data", ports) if feed == "data" else [ports[feed]]
    # Numbers in logs and greetings stay unique over all clones.
    number = slot.name.removeprefix("websocket-")
    return {
        **environment.websocket(number, str(options.mode), *feeds),
        **_edge("WEBSOCKET", options, ports, slot),
        **_traffic(options, ports, KafkaUser.EDGE),
    }


def _bridge(options: Options, ports: Mapping[str, Ports], slot: Slot) -> dict[str, str]:
    kafka = _kafka(options, ports, KafkaUser.BRIDGE)
    if not options.mode.partitioned:
        return environment.bridge(str(slot.number)) | kafka
    server = ports[slot.twin("websocket")]
    public_url = f"ws://{server.public_address}/ws"
    if server.name is not None:
        public_url = str(_location(server, "ws", "/ws", options).get("url", public_url))
    return environment.paired_bridge(str(slot.number), slot.clone, server, public_url) | kafka


def _server_addresses(ports: Mapping[str, Ports]) -> list[str]:
    """Return rules for the internal listeners of all servers that may ever run here."""
    return [f"{_rule(own)}:{own.internal}" for own in _all("websocket", ports)]


def _rule(own: Ports) -> str:
    """Return the address of a process as a network; of IPv6 in brackets, as a port follows."""
    network = ip_network(own.host)
    return f"[{network}]" if network.version == 6 else str(network)


def _metadata(options: Options, ports: Mapping[str, Ports], slot: Slot) -> dict[str, str]:
    clones = range(1, (options.clones or 1) + 1)
    allowed = {"DIEM_METADATA_ALLOWED": json.dumps(_server_addresses(ports))}
    kafka = _kafka(options, ports, KafkaUser.METADATA)
    return environment.metadata(clones) | allowed | _edge("METADATA", options, ports, slot) | kafka


def _proxy(options: Options, ports: Mapping[str, Ports], slot: Slot) -> dict[str, str]:
    servers = _server_addresses(ports)
    return {
        **environment.proxy(slot.number, options.proxy or ProxyMode.SHARED, ports["metadata"], servers),
        **_edge("PROXY", options, ports, slot),
        **_traffic(options, ports, KafkaUser.EDGE),
    }


def _composite(options: Options, ports: Mapping[str, Ports], slot: Slot) -> dict[str, str]:
    return {
        "DIEM_COMPOSITE_NUMBER": str(slot.number),
        "DIEM_COMPOSITE_PAIRS": str(options.servers),
        # In mode xz, composites are scaled, not the pairs of each.
        "DIEM_COMPOSITE_MAX_PAIRS": str(
            sizes_of(options).max_servers if options.mode is Mode.Z_COMPOSITE else options.servers
        ),
        "DIEM_COMPOSITE_MODE": str(options.mode),
        "DIEM_COMPOSITE_PROXY": options.proxy or ProxyMode.SHARED,
        **_edge("COMPOSITE", options, ports, slot),
        # Inherited by its children.
        **_kafka(options, ports, KafkaUser.COMPOSITE),
        **_traffic(options, ports, KafkaUser.COMPOSITE),
    }


def _traffic(options: Options, ports: Mapping[str, Ports], user: KafkaUser) -> dict[str, str]:
    """Return the settings with which a process records its clients' subscriptions, or the requests that it serves."""
    env = {
        "DIEM_TRAFFIC_SINK": str(options.traffic_sink),
        "DIEM_TRAFFIC_DIR": str(options.state_dir / "traffic"),
        "DIEM_TRAFFIC_SALT_FILE": str(options.state_dir / "traffic.salt"),
    }
    return env | (_kafka(options, ports, user) if options.traffic_sink is Traffic.KAFKA else {})


def _kafka(options: Options, ports: Mapping[str, Ports], user: KafkaUser) -> dict[str, str]:
    """Return the settings of the connection to Kafka, of a local one as ``user``; empty in the modes without it."""
    if not options.mode.uses_kafka:
        return {}
    wanted = options.kafka
    local_brokers = ",".join(f"{HOST}:{own.public}" for name, own in ports.items() if name.startswith("kafka-"))
    values = {name: getattr(wanted, name) for name in wanted.settings()} | {
        "bootstrap_servers": wanted.bootstrap_servers or local_brokers,
        # Explicit, because brokers start one by one: the number at first is too low.
        "replication": wanted.replication or wanted.local_brokers or None,
    }
    if wanted.local_brokers:
        values |= dict.fromkeys(wanted.security()) | user.settings(directory_of(options.state_dir))
    return {f"DIEM_KAFKA_{name.upper()}": str(value) for name, value in values.items() if value is not None}


def _own_keys(options: Options, ports: Mapping[str, Ports], own: Ports) -> list[str]:
    """Return where a process reads the keys with which the Data Service signs tokens.

    Raises:
        BadTopology: it could not do so over HTTPS, and needs them.
    """
    data = _all("data", ports)
    if len(data) == 1 and own.host == data[0].host:
        # A file, because anybody on this machine could answer at the Data Service's port while it is down.
        return [str(options.state_dir / "token-keys.json")]
    for origin in _client_origins(options, ports):
        if origin.startswith("https://") and not is_of_this_machine(urlsplit(origin).hostname or ""):
            return [f"{origin}/v1/tokens/keys"]
    if options.access.anonymous != "on" and not options.access.token_keys:
        raise BadTopology(
            "other hosts verify the tokens of clients with keys that they read from the Data Service over https, by a "
            "name of its page: add --origin https://NAME, or --anonymous on, or DIEM_WEBSOCKET_TOKEN_KEYS"
        )
    return []


def _edge(process: str, options: Options, ports: Mapping[str, Ports], slot: Slot) -> dict[str, str]:
    """Return the settings that decide which clients a process admits."""
    prefix = f"DIEM_{process}_"
    own_keys = _own_keys(options, ports, ports[slot.name])
    access = options.access.values(own_keys, trusts_loopback=options.trusts_loopback)
    env = {f"{prefix}PAGE_PORT": str(ports["data"].public), **environment.access(process, access)}
    if process != "METADATA":
        env[f"{prefix}READS_URL"] = environment.reads_urls(_all("data", ports))
        env[f"{prefix}ANONYMOUS_DATA"] = options.access.anonymous_data(trusts_loopback=options.trusts_loopback)
    if options.clients_per_address is not None:
        env[f"{prefix}CONNECTIONS_PER_ADDRESS"] = str(options.clients_per_address)
    if process != "METADATA":
        env[f"{prefix}LIMIT_LOOPBACK"] = json.dumps(options.limits_loopback)
    if options.mode.behind_nginx or options.public != PublicAddress() or options.client_origins:
        # The page on the Data Service's own port, without TLS, is allowed by PAGE_PORT.
        env[f"{prefix}ORIGINS"] = json.dumps(_client_origins(options, ports))
    return env | _trusted_proxies(process, options, ports)


def _client_origins(options: Options, ports: Mapping[str, Ports]) -> tuple[str, ...]:
    """Return the origins whose pages may connect."""
    own = options.public.page_origins(ports["nginx" if options.mode.behind_nginx else "data"].public)
    return tuple(dict.fromkeys((*own, *options.client_origins)))


def _reading_origins(options: Options) -> tuple[str, ...]:
    """Return the origins whose pages may read across origins.

    The first name of a public system is its own page's, which needs no permission: with it, all answers would vary by
    origin for caches.
    """
    public = options.public
    own = public.own_origins[:1] if options.front_proxies or public.certificate else ()
    return tuple(dict.fromkeys((*(each for each in public.origins if each not in own), *options.cors_origins)))


def _trusted_proxies(process: str, options: Options, ports: Mapping[str, Ports]) -> dict[str, str]:
    """Return the setting with the proxies in front of a process: nginx, which believes the front proxies, or these."""
    balancers = dict.fromkeys(str(ip_network(own.host)) for own in _all("nginx", ports))
    trusted = list(balancers) if options.mode.behind_nginx else options.front_proxies
    return {f"DIEM_{process}_TRUSTED_PROXIES": json.dumps(trusted)} if trusted else {}
