"""Composes the topology of a mode: every process with its command line, addresses and environment; pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from deploy.topology.kafka_users import KafkaUser, directory_of
from deploy.topology.model import HOST, SCALED, Planned, Ports, Readiness, Slot, Topology
from deploy.topology.options import Clients, Options, Traffic, check_settings
from deploy.topology.public_address import BadTopology, PublicAddress
from deploy.topology.slots import CLONES, sizes_of, slots
from diem.links import unix_sockets
from diem.process.listeners import is_of_this_machine
from diem.process.modes import CLIENTS_OF_KAFKA, RECORDERS, Mode, Place, all_of, environment, reads_urls
from diem.process.settings import PROCESSES, by_process, short_variables

LOCALHOST: Final = "localhost"
AT_PAGE: Final = {"href": "ws"}
"""Location of a server beside the page, relative to ``/config.json``; older clients take the others."""
SERVED_BYTES: Final = 1 << 30
"""Bound of the data that each server retains of a topic which is served as it is."""
_RESOLVED = frozenset({"websocket", "proxy", "composite"})
"""Processes with client connections on their public listeners."""


@dataclass(frozen=True, slots=True)
class Programs:
    """Command lines: ``diem`` for our processes, ``others`` for brokers and nginx, by name."""

    diem: tuple[str, ...]
    others: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def compose(options: Options, ports: Mapping[str, Ports], programs: Programs) -> Topology:
    """Describe every process of the mode, including those started only by ``diem scale``.

    Raises:
        BadTopology: the options do not fit the mode, or a setting is for an unknown process.
    """
    mode = options.mode
    size = sizes_of(options)
    wanted = slots(mode, size)
    check_settings(options.settings, [slot.name for slot in wanted])
    page = _client_address(ports["nginx" if options.behind_nginx else "data"], options)
    metadata = [ports["metadata"]] if mode is Mode.Z_CLIENT else []
    secure = "s" if options.clients.public.certificate else ""
    return Topology(
        mode=mode,
        processes=tuple(_plan(slot, options, ports, programs) for slot in wanted),
        servers=size.clones if mode is Mode.XZ else size.servers,
        max_servers=size.max_servers,
        clones=size.clones,
        pairs=size.servers if mode.edge == "composite" else 0,
        page_url=f"http{secure}://{page}/",
        rest_url=f"http{secure}://{page}/v1",
        websocket_urls=tuple(f"ws{secure}://{_client_address(own, options)}/ws" for own in _edges(options, ports)),
        metadata_urls=tuple(f"http{secure}://{_client_address(own, options)}/v1" for own in metadata),
        public=options.clients.public,
    )


def overridden(topology: Topology, environ: Mapping[str, str]) -> list[str]:
    """Return the environment variables overridden by the topology, which would be silently ignored.

    Kafka's are options of ``diem up`` in modes with Kafka, without effect in others.
    """
    given, short = by_process(environ), short_variables(environ)
    planned = {setting for process in topology.processes for setting in process.env.items()}
    own = {"DIEM_STATE_DIR", "DIEM_LOG_LEVEL", "DIEM_DRAIN_SECONDS", "DIEM_TIME_FACTOR"}
    # Keys are added to the Data Service's, origins to the page's.
    own |= {name for name, _ in planned if name.endswith(("_TOKEN_KEYS", "_ORIGINS"))}
    ignored = {name for name, value in planned if name not in own and given.get(name, value) != value}
    if not any("DIEM_KAFKA_BOOTSTRAP_SERVERS" in process.env for process in topology.processes):
        ignored |= {name for name in given if name.startswith("DIEM_KAFKA_")}
    return sorted({short.get(name, name) for name in ignored})


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
        sweep=slot.process == "nginx",  # its workers survive it and hold the port
        reloads=options.clients.public.certificate is not None and options.admits(slot.process),
        clone=_clone(slot, options.mode),
    )


def _clone(slot: Slot, mode: Mode) -> int | None:
    if mode not in CLONES or slot.process not in SCALED:
        return None
    return slot.number if slot.process == "composite" else slot.clone


def _environment(slot: Slot, options: Options, ports: Mapping[str, Ports]) -> dict[str, str]:
    if slot.process not in PROCESSES:
        return {}
    place = Place(
        mode=options.mode,
        process=slot.process,
        name=slot.name,
        number=str(slot.number),
        ports=ports,
        given={
            "all": shared(options),
            "kafka": _kafka(slot.process, options, ports),
            "traffic": _traffic(options) if slot.process in RECORDERS else {},
            slot.process: {**_listener(slot, options), **_given(slot, options, ports)},
        },
        clone=slot.clone,
        clones=options.scaling.clones or 1,
    )
    return environment(place)


def _given(slot: Slot, options: Options, ports: Mapping[str, Ports]) -> Mapping[str, str | None]:
    """Return the settings derived from the options, and those different from the table's on several hosts."""
    match slot.process:
        case "data":
            return _data(options, ports)
        case "bridge":
            server = ports[slot.twin("websocket")]
            url = None if server.name is None else _location(server, "ws", "/ws", options).get("url")
            return {} if url is None or not options.mode.partitioned else {"SERVER_PUBLIC_URL": str(url)}
        case "composite":
            # In mode xz, composites are scaled, not their pairs.
            most = sizes_of(options).max_servers if options.mode is Mode.Z_COMPOSITE else options.scaling.servers
            pairs = {"PAIRS": str(options.scaling.servers), "MAX_PAIRS": str(most)}
            return {**pairs, **_edge(options, ports, slot)}
        case "websocket" | "proxy" | "metadata":
            return _edge(options, ports, slot)
    return {}


def _listener(slot: Slot, options: Options) -> dict[str, str | None]:
    """Return the address of the public listener, and its certificate."""
    if not options.admits(slot.process):
        return {} if options.behind_nginx else {"HOST": HOST}
    public = options.clients.public
    at_both = public.listen == HOST and options.clients.is_local
    return {
        # On both loopback addresses, as URLs of pages and in browsers have the name.
        "HOST": LOCALHOST if at_both else public.listen,
        "TLS_CERTIFICATE": _path(public.certificate),
        "TLS_KEY": _path(public.certificate and public.key),
    }


def _readiness(slot: Slot) -> Readiness:
    return {"nginx": Readiness.HTTP, "kafka": Readiness.CONNECT}.get(slot.process, Readiness.READYZ)


def _public_url(slot: Slot, own: Ports, options: Options) -> str | None:
    if own.public is None or slot.process == "kafka":
        return None
    public = options.clients.public if options.admits(slot.process) else PublicAddress()
    at = f"{'s' if public.certificate else ''}://{_client_address(own, options, public)}"
    return f"ws{at}/ws" if slot.process in _RESOLVED else f"http{at}/"


def shared(options: Options) -> dict[str, str | None]:
    """Return the settings common to all our processes."""
    sockets = options.state_dir / "sockets"
    return {
        "STATE_DIR": str(options.state_dir),
        # Internal links use TCP if the paths are too long for sockets, and between hosts.
        "INTERNAL_SOCKETS": str(sockets) if options.clients.is_local and unix_sockets.fits(sockets) else None,
        "INTERNAL_KEY_FILE": str(options.state_dir / "internal.key"),
        "LOG_LEVEL": options.log_level,
        "LOG_FORMAT": "json",
        "DRAIN_SECONDS": str(options.durations.drain_seconds),
        "TIME_FACTOR": str(options.durations.time_factor),
        # Supervised by DIEM on this machine: a single health port would go to the first process.
        "SUPERVISED": "1" if options.clients.is_local else None,
        "HEALTH_PORT": "" if options.clients.is_local else None,
    }


def _edges(options: Options, ports: Mapping[str, Ports]) -> list[Ports]:
    """Return the processes to which clients may connect; one of those that share a port."""
    if options.behind_nginx:
        return [ports["nginx"]]
    found = all_of(options.mode.edge, ports)
    return found[:1] if options.mode.behind_nginx else found


def _client_address(own: Ports, options: Options, public: PublicAddress | None = None) -> str:
    """Return the host and port for clients."""
    return f"{own.name or (public or options.clients.public).connect}:{own.public}"


def _location(own: Ports, scheme: str, path: str, options: Options) -> dict[str, object]:
    """Return the location of a process for pages: a port of their own address, or a URL on another host."""
    if own.name is None or options.behind_nginx:
        return {"port": own.public, "path": path}
    # A front proxy with TLS passes the port on.
    public = options.clients.public
    is_secure = public.certificate or any(each.startswith("https:") for each in public.own_origins)
    secure = "s" if is_secure else ""
    return {"url": f"{scheme}{secure}://{_client_address(own, options)}{path}"}


def _data(options: Options, ports: Mapping[str, Ports]) -> dict[str, str | None]:
    edges = [_location(own, "ws", "/ws", options) for own in _edges(options, ports)]
    if options.clients.front_proxies and options.clients.public.own_origins and len(edges) == 1:
        # Clients connect to the front proxy, which forwards /ws; by any of its names, or below a path.
        edges = [{"url": f"ws{options.clients.public.own_origins[0].removeprefix('http')}/ws", **AT_PAGE}]
    elif options.behind_nginx:
        edges = [{**each, **AT_PAGE} for each in edges]
    is_found, served = options.mode is Mode.Z_CLIENT, options.kafka.topic is not None
    return {
        "WRITE_KEY_FILE": str(options.state_dir / "write.key"),
        "WEBSOCKET_SERVERS": json.dumps(edges),
        "METADATA_SERVICES": _list([_location(ports["metadata"], "http", "/v1", options)]) if is_found else None,
        "CONFIG": _path(options.content.config),
        "OWN_PAGES": _path(options.content.pages),
        "TRUSTED_PROXIES": _list(_trusted_proxies(options, ports)),
        "ANONYMOUS_READS": _reads(options.clients),
        # Including the first: on its return, another one has the store.
        "STANDBY": "true" if options.scaling.standbys else None,
        "HOSTS": _list(options.clients.public.hosts),
        # The same as the servers', to explain their refusals.
        "CLIENT_ORIGINS": json.dumps(_client_origins(options, ports)),
        "CORS_ORIGINS": _list(options.clients.cross_origin_readers),
        "OPERATOR_URL": options.content.operator_url,
        "HOT": _list(options.content.hot),
        "RETAINED_BY": _list(
            [f"http://{own.internal_address}" for own in all_of("websocket", ports)] if served else []
        ),
    }


def _path(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _list(values: Sequence[object]) -> str | None:
    """Return a list setting, omitted if empty."""
    return json.dumps(values) if values else None


def _reads(clients: Clients) -> str | None:
    """Return the readers exempt from keys, unless the command's environment decides."""
    reads = clients.access.anonymous_reads
    if clients.front_proxies and reads == "auto":
        return "off"
    return reads if reads == "off" or not clients.is_local else None


def _traffic(options: Options) -> dict[str, str]:
    """Return the destination of a process's recorded subscriptions or requests."""
    return {
        "SINK": str(options.traffic_sink),
        "DIR": str(options.state_dir / "traffic"),
        "SALT_FILE": str(options.state_dir / "traffic.salt"),
    }


def _kafka(process: str, options: Options, ports: Mapping[str, Ports]) -> dict[str, str | None]:
    """Return the settings of a process's connection to Kafka; empty without one."""
    records = process in RECORDERS and options.traffic_sink is Traffic.KAFKA
    wanted = options.kafka
    if wanted.topic is not None and process == "data" and not records:
        # It publishes nothing.
        return {"TOPIC": wanted.topic}
    uses_kafka = options.mode.uses_kafka or wanted.topic is not None
    if not uses_kafka or not (records or process in CLIENTS_OF_KAFKA):
        return {}
    local_brokers = ",".join(f"{HOST}:{own.public}" for own in all_of("kafka", ports))
    values = {name: getattr(wanted, name) for name in wanted.settings()} | {
        "bootstrap_servers": wanted.bootstrap_servers or local_brokers,
        # Explicit, as brokers start one by one and are too few at first.
        "replication": wanted.replication or wanted.local_brokers or None,
    }
    if wanted.local_brokers:
        user = KafkaUser.EDGE if process in {"websocket", "proxy"} else KafkaUser(process)
        values |= dict.fromkeys(wanted.security()) | user.settings(directory_of(options.state_dir))
    return {name.upper(): None if value is None else str(value) for name, value in values.items()}


def _own_keys(options: Options, ports: Mapping[str, Ports], own: Ports) -> list[str]:
    """Return a process's location of the Data Service's token keys.

    Raises:
        BadTopology: they are needed, but not reachable over HTTPS.
    """
    data = all_of("data", ports)
    if len(data) == 1 and own.host == data[0].host:
        # A file, as any local user could answer on the Data Service's port while it is down.
        return [str(options.state_dir / "token-keys.json")]
    for origin in _client_origins(options, ports):
        if origin.startswith("https://") and not is_of_this_machine(urlsplit(origin).hostname or ""):
            return [f"{origin}/v1/tokens/keys"]
    if options.clients.access.anonymous != "on" and not options.clients.access.token_keys:
        raise BadTopology(
            "other hosts verify the tokens of clients with keys that they read from the Data Service over https, by a "
            "name of its page: add --origin https://NAME, or --anonymous on, or DIEM_WEBSOCKET_TOKEN_KEYS"
        )
    return []


def _edge(options: Options, ports: Mapping[str, Ports], slot: Slot) -> dict[str, str | None]:
    """Return the settings for admitting clients."""
    clients = options.clients
    trusted = clients.trusts_loopback(behind_nginx=options.behind_nginx)
    has_origins = options.behind_nginx or clients.public != PublicAddress() or clients.origins
    return {
        **clients.access.values(_own_keys(options, ports, ports[slot.name]), trusts_loopback=trusted),
        "PAGE_PORT": str(ports["data"].public),
        "READS_URL": reads_urls(all_of("data", ports)),
        "ANONYMOUS_DATA": clients.access.anonymous_data(trusts_loopback=trusted),
        # The only memory of the data, bounded nevertheless.
        "RETAINED_DATA_BYTES": str(SERVED_BYTES) if options.kafka.topic is not None else None,
        "CONNECTIONS_PER_ADDRESS": None if clients.per_address is None else str(clients.per_address),
        "LIMIT_LOOPBACK": json.dumps(clients.limits_loopback),
        "SHARED_PORT": "true" if slot.shares_port else None,
        # The page on the Data Service's own port, without TLS, is allowed by PAGE_PORT.
        "ORIGINS": json.dumps(_client_origins(options, ports)) if has_origins else None,
        "TRUSTED_PROXIES": _list(_trusted_proxies(options, ports)),
    }


def _client_origins(options: Options, ports: Mapping[str, Ports]) -> tuple[str, ...]:
    """Return the origins of pages that may connect."""
    own = options.clients.public.page_origins(ports["nginx" if options.behind_nginx else "data"].public)
    return tuple(dict.fromkeys((*own, *options.clients.origins)))


def _trusted_proxies(options: Options, ports: Mapping[str, Ports]) -> Sequence[str]:
    """Return the proxies in front of a process: nginx, which trusts the front proxies, or these."""
    balancers = list(dict.fromkeys(str(ip_network(own.host)) for own in all_of("nginx", ports)))
    return balancers if options.behind_nginx else options.clients.front_proxies
