"""The command ``diem up``: run every process of a mode on this machine."""

import contextlib
import os
import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from deploy import topology as plan
from deploy.admin.listener import DEFAULT_PORT, OperatorPage
from deploy.cli.mode_options import (
    AnonymousOption,
    ClientsPerAddressOption,
    DrainSecondsOption,
    FrontProxyOption,
    HotOption,
    LogLevelOption,
    OriginOption,
    PortOption,
    ProxyOption,
    SettingsOption,
    SystemOption,
    TlsKeyOption,
    clients_of,
    clones_option,
    config_file,
    max_servers_option,
    read_config,
    servers_option,
    traffic_option,
)
from deploy.cli.options import (
    ALL_KAFKA,
    TOPIC,
    StateDirOption,
    hot_endpoints,
    kafka_settings,
    option_name,
    topology_fields,
    with_kafka_options,
)
from deploy.system import launch
from deploy.system.state_dir import StateDir
from deploy.system.up import Up, stage_seconds
from deploy.terminal import DEFAULT_STATE_DIR, Terminal
from deploy.topology import ports
from diem.kafka.config import KafkaSettings
from diem.process import lifecycle, log
from diem.process.addresses import HOST
from diem.process.cores import usable_cores
from diem.process.fork_server import ForkServer
from diem.process.lifecycle import Lifecycle
from diem.process.listeners import PortInUse
from diem.process.modes import INSIDE_COMPOSITE
from diem.process.ports import PortReservations
from diem.process.settings import PROCESSES, by_process, variable
from diem.process.tls import certificate_names, server_context
from services.data.pages import check_pages


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command()(with_kafka_options(up, ALL_KAFKA))


def up(
    *,
    mode: Annotated[
        plan.Mode | None,
        typer.Option(
            help="What runs between the Data Service and the browsers. "
            "Default: single, or for several servers x-broadcast."
        ),
    ] = None,
    servers: Annotated[
        str | None,
        servers_option(
            "auto, one for each core, in x-broadcast and without --mode, where that has more than two cores; else 1 in "
            "single and all-to-all, 2 in others",
            metavar="NUMBER|auto",
        ),
    ] = None,
    max_servers: Annotated[int | None, max_servers_option("8, or the initial number if that is higher")] = None,
    clones: Annotated[int | None, clones_option("2")] = None,
    proxy: ProxyOption = None,  # noqa: ARG001 - checked by its type
    hot: HotOption = None,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    config: SystemOption = None,
    pages: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Directory of your own pages, served as they are on disk, at the same address as the SDK.",
        ),
    ] = None,
    port: PortOption = None,
    websocket_port: Annotated[
        int | None,
        typer.Option(
            hidden=True,
            min=1,
            max=65535,
            help="Port of the first WebSocket server, proxy or composite.",
        ),
    ] = None,
    admin_port: Annotated[
        int | None,
        typer.Option(
            hidden=True,
            min=0,
            max=65535,
            help="Port of the operator page, which is for this machine only; 0: no such page. Default: 8090.",
        ),
    ] = None,
    nginx: Annotated[
        bool | None,
        typer.Option(
            hidden=True,
            help="Whether nginx stands in front of equal servers or composites, with everything at one port, or these "
            "share a port beside that of the page. Default: nginx behind --front-proxy, with --tls-certificate, and on "
            "other systems than Linux.",
        ),
    ] = None,
    free_ports: Annotated[
        bool, typer.Option(hidden=True, help="Use any free ports instead of the documented ones.")
    ] = False,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS[:PORT]",
            help="Address for clients; 0.0.0.0 accepts them from other machines. Default: 127.0.0.1.",
        ),
    ] = None,
    tls_certificate: Annotated[
        Path | None,
        typer.Option(
            hidden=True,
            metavar="FILE",
            help="Certificate chain (PEM) for clients; read again on SIGHUP.",
        ),
    ] = None,
    tls_key: TlsKeyOption = None,
    origin: OriginOption = None,
    front_proxy: FrontProxyOption = None,
    anonymous: AnonymousOption = None,
    clients_per_address: ClientsPerAddressOption = None,
    traffic: Annotated[plan.Traffic | None, traffic_option("files")] = None,
    brokers: Annotated[int | None, typer.Option(hidden=True, min=1, help="Local brokers, 1 or 3. Default: 1.")] = None,
    kafka: Mapping[str, object],
    settings: SettingsOption = None,
    log_level: LogLevelOption = "info",
    drain_seconds: DrainSecondsOption = 3.0,
    time_factor: Annotated[
        float,
        typer.Option(
            hidden=True,
            envvar="DIEM_TIME_FACTOR",
            min=0.1,
            max=100,
            help="Factor for all time-outs, for slow machines.",
        ),
    ] = 1.0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only warnings.")] = False,
) -> int:
    """Start every process of a mode and keep them running; Ctrl-C stops them.

    There are more options, for keys of the table [system] in diem.toml and, in the same way, for the command line:
    `diem config system` has all of them.
    """
    terminal = Terminal(quiet=quiet)
    if mode is None and nginx is None and sys.platform == "linux":
        # Ports are the same whatever the number of cores.
        nginx = False
    mode, count = _start(mode, servers, max_servers, clones, terminal, serves_topic=kafka.get(TOPIC) is not None)
    if not mode.uses_kafka and kafka.get(TOPIC) is None:
        _refuse_kafka(mode, brokers, kafka)
    file = config_file(config)
    if file is not None:
        read_config(file)
    cluster = _kafka(brokers or 1, kafka)
    if pages is not None:
        kafka_key = cluster.key_file or cluster.certificate_file
        secrets = (tls_key or tls_certificate, cluster.sasl_password_file, kafka_key)
        private = (state_dir, file, *secrets)
        check_pages(pages, (path for path in private if path is not None), "--pages")
    public, port = _public(listen, port, tls_certificate, tls_key, origin or [])
    clients = clients_of(public, front_proxy, anonymous, clients_per_address, file)
    options = plan.Options(
        mode,
        state_dir.absolute(),
        scaling=plan.Scaling(count, max_servers, clones, balancers=int(_has_nginx(mode, clients, nginx))),
        clients=clients,
        content=plan.Content(
            # The Data Service has the variable itself.
            config=_absolute(
                file if config is not None or not by_process(os.environ).get("DIEM_DATA_CONFIG") else None
            ),
            pages=_absolute(pages),
            hot=hot_endpoints(hot or []),
        ),
        durations=plan.Durations(drain_seconds, time_factor),
        kafka=cluster,
        traffic=traffic,
        log_level=log_level,
        settings=plan.parse_settings(settings or []),
    )
    log.configure("warning", "console")
    return _up(options, terminal, port, websocket_port, admin_port, free_ports=free_ports)


def _start(
    mode: plan.Mode | None,
    servers: str | None,
    most: int | None,
    clones: int | None,
    terminal: Terminal,
    *,
    serves_topic: bool,
) -> tuple[plan.Mode, int]:
    """Return the mode and the number of servers, and print what follows from the cores. Raises ``BadTopology``."""
    try:
        number = servers if servers in {None, plan.AUTO} else int(servers or "")
    except ValueError:
        raise plan.BadTopology(f"--servers is a number or auto, not {servers}") from None
    cores = usable_cores()
    # Elsewhere the kernel does not share out connections; a topic is not served by x-broadcast.
    alone = mode is None and (sys.platform != "linux" or serves_topic)
    found, count = plan.start_of(mode, number, 1 if alone else cores, most, clones)
    if 1 < count <= cores and (number == plan.AUTO or (number is None and found is plan.Mode.X_BROADCAST)):
        one = "" if mode else ", without Kafka; one server uses one core, and `diem up --mode single` has one"
        terminal.info(f"{cores} cores: {count} servers in mode {found}{one}")
    return found, count


def _public(
    listen: str | None, port: int | None, certificate: Path | None, key: Path | None, origins: list[str]
) -> tuple[plan.PublicAddress, int | None]:
    """Return the public address with the port of the page. Raises ``ConfigurationError``."""
    address, given = (HOST, None) if listen is None else plan.parse_listen(listen)
    if None not in {port, given} and port != given:
        raise plan.BadTopology(f"--port {port} and --listen {listen} name two ports")
    names: tuple[str, ...] = ()
    if certificate is not None:
        server_context(certificate, key)
        names = certificate_names(certificate)
    public = plan.PublicAddress(address, _absolute(certificate), _absolute(key), plan.parse_origins(origins), names)
    return public, port if given is None else given


def _has_nginx(mode: plan.Mode, clients: plan.Clients, nginx: bool | None) -> bool:
    """Return whether nginx stands in front. Raises ``BadTopology``."""
    if nginx and not mode.behind_nginx:
        modes = ", ".join(each for each in plan.Mode if each.behind_nginx)
        raise plan.BadTopology(f"--nginx is for --mode {modes}, not {mode}")
    if nginx is not None:
        return nginx
    # What others connect to has one port, as before; elsewhere the kernel does not share out connections.
    return bool(clients.public.certificate or clients.front_proxies) or sys.platform != "linux"


def _refuse_kafka(mode: plan.Mode, brokers: int | None, given: Mapping[str, object]) -> None:
    # Environment variables may be meant for other commands, so they only cause a warning.
    for name in ["--brokers"] * (brokers is not None) + [option_name(name) for name in _typed(given)]:
        modes = ", ".join(each for each in plan.Mode if each.uses_kafka)
        raise plan.BadTopology(f"{name} is for --mode {modes}: mode {mode} uses no Kafka")


def _typed(given: Mapping[str, object]) -> list[str]:
    """Return the options given on the command line; others come from the environment."""
    return [name for name in given if variable(KafkaSettings, name) not in os.environ]


def _kafka(brokers: int, given: Mapping[str, object]) -> plan.KafkaTopology:
    """Return the validated options of Kafka. Raises ``BadSettings``, ``BadTopology``."""
    chosen = kafka_settings(given)
    if chosen.kafka_bootstrap_servers is None:
        for name in _typed(given):
            if name.removeprefix("kafka_") in plan.KafkaTopology.security():
                raise plan.BadTopology(
                    f"{option_name(name)} is for --bootstrap-servers: the brokers of `diem up` have users of their own"
                )
    named = topology_fields(chosen)
    paths = {name: _absolute(value) for name, value in named.items() if isinstance(value, Path)}
    return plan.KafkaTopology(brokers=brokers, **{**named, **paths})


def _up(
    options: plan.Options,
    terminal: Terminal,
    port: int | None,
    websocket_port: int | None,
    admin_port: int | None,
    *,
    free_ports: bool,
) -> int:
    size = plan.sizes_of(options)
    slots = plan.slots(options.mode, size)
    plan.check_settings(options.settings, [slot.name for slot in slots])
    fixed = plan.fixed_ports(slots, port, websocket_port)
    launch.check_prerequisites(options)
    if options.kafka.topic is not None:
        launch.check_kafka_client(options.mode)
    state = StateDir(options.state_dir)
    # Before anything is opened. Composites fork from what they are themselves.
    inside = INSIDE_COMPOSITE if options.mode.edge == "composite" else ()
    fork_server = ForkServer.start(({slot.process for slot in slots} | {*inside}) & set(PROCESSES))
    with (
        lifecycle.private_files(),
        state.lock(),
        PortReservations(options.clients.public.listen) as reservations,
        contextlib.ExitStack() as closing,
    ):
        if fork_server is not None:
            closing.callback(fork_server.close)
        first = ports.start_at_random(random.SystemRandom()) if free_ports else ports.start_at_default
        chosen = plan.assign_ports(slots, fixed, first, reservations.reserve)
        for own in plan.protectable(slots, chosen):
            reservations.protect(own)
        page = _operator_page(state, admin_port, first, reservations.reserve)
        if page is not None:
            reservations.protect(page.port)
            closing.callback(page.close)
            options = replace(options, content=replace(options.content, operator_url=page.url))
        with terminal.downloads() as progress:
            programs = launch.prepare(
                options.mode,
                options.state_dir,
                chosen,
                progress,
                clients=options.clients,
                caches=options.public_reads,
            )
        topology = plan.compose(options, chosen, programs)
        if not free_ports and not fixed:
            for moved in plan.moved_ports(slots, chosen, topology.servers):
                terminal.info(moved)
        _show_closed(options.clients, terminal)
        for variable in plan.overridden(topology, os.environ):
            terminal.warn(f"{variable} has no effect here: `diem up` sets it itself (see `diem up --help`)")
        # Each stage has its own deadline; the life cycle's only guards against a hung supervisor.
        life = Lifecycle(drain_seconds=(len(plan.StopStage) + 1) * stage_seconds(options.durations))
        try:
            return lifecycle.serve(
                life,
                lambda: Up(
                    options.durations,
                    topology,
                    state,
                    terminal,
                    topic_prefix=options.kafka.topic_prefix,
                    page=page,
                    fork_server=fork_server,
                ).run(life),
            )
        finally:
            launch.clean(options)


def _operator_page(
    state: StateDir, port: int | None, first: Callable[[int], int], reserve: Callable[[int], bool]
) -> OperatorPage | None:
    """Return the operator page, bound to ``port`` or to the next free one; None for port 0. Raises ``PortInUse``."""
    if port == 0:
        return None
    if port is not None and not reserve(port):
        raise PortInUse(HOST, port)
    return OperatorPage(
        ports.next_free(DEFAULT_PORT, first, reserve) if port is None else port,
        key_file=state.operator_key_file,
    )


def _show_closed(clients: plan.Clients, terminal: Terminal) -> None:
    """Print the meaning of ``auto`` behind a front proxy, which may not forward its clients' addresses."""
    closed = {
        "clients need a token (--anonymous on)": clients.access.anonymous,
        "readers need a key (DIEM_DATA_ANONYMOUS_READS=on)": clients.access.anonymous_reads,
    }
    if clients.front_proxies and (who := [each for each, rule in closed.items() if rule == "auto"]):
        terminal.info(f"behind --front-proxy, all {' and all '.join(who)}, even on this machine")


def _absolute(path: Path | None) -> Path | None:
    return path.absolute() if path else None
