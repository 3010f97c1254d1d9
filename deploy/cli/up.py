"""The command ``diem up``: run every process of a mode on this machine."""

import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import typer

from deploy import topology as plan
from deploy.cli.options import KAFKA_PANEL, StateDirOption, kafka_settings, option_name, with_kafka_options
from deploy.system import launch
from deploy.system.state_dir import StateDir
from deploy.system.up import Up, stage_seconds
from deploy.terminal import DEFAULT_STATE_DIR, Terminal
from deploy.topology import ports
from diem.kafka.config import KafkaSettings
from diem.process import lifecycle, log
from diem.process.edge_settings import Anonymous
from diem.process.environment import HOST
from diem.process.lifecycle import Lifecycle
from diem.process.ports import PortReservations
from diem.process.settings import variable
from diem.process.tls import certificate_names, server_context
from diem.protocol import endpoints

DEFAULT_SERVERS: Final = {mode: 2 for mode in plan.Mode if mode.uses_kafka} | {plan.Mode.X_BROADCAST: 2}

_PortOption = Annotated[
    int | None, typer.Option(min=1, max=65535, help="Port of page and REST; behind nginx, of everything.")
]


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command()(with_kafka_options(up))


def up(
    *,
    mode: Annotated[plan.Mode, typer.Option(help="Scaling mode.")] = plan.Mode.SINGLE,
    servers: Annotated[
        int | None,
        typer.Option(help="WebSocket servers (of each clone or composite); 1 in single and all-to-all, else 2."),
    ] = None,
    max_servers: Annotated[
        int | None, typer.Option(help="Most servers, in xz composites, for `diem scale`; 8, or the initial number.")
    ] = None,
    clones: Annotated[
        int | None,
        typer.Option(help="Groups with every endpoint each: of servers in z-client, 1; composites in xz, 2."),
    ] = None,
    proxy: Annotated[
        plan.ProxyMode | None,
        typer.Option(help="Connections from proxy to servers: one to each for all clients, or per client; shared."),
    ] = None,
    hot: Annotated[
        list[str] | None,
        typer.Option(metavar="ENDPOINT", help="An endpoint that every server has in partitioned modes; repeatable."),
    ] = None,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    config: Annotated[
        Path | None, typer.Option(help="Sources; without it ./diem.toml if there is one, else a simulated market.")
    ] = None,
    port: _PortOption = None,
    websocket_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port of the first WebSocket server, proxy or composite.")
    ] = None,
    free_ports: Annotated[bool, typer.Option(help="Use any free ports instead of the documented ones.")] = False,
    listen: Annotated[
        str | None, typer.Option(metavar="ADDRESS[:PORT]", help="Address for clients; 127.0.0.1. 0.0.0.0 for all.")
    ] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificate chain (PEM) for clients; read again on SIGHUP.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Private key of the certificate; default: in its file.")
    ] = None,
    origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="Public origin of the page, as https://NAME; default: the certificate's names; repeatable.",
        ),
    ] = None,
    front_proxy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CIDR", help="Proxy or TLS terminator in front, whose X-Forwarded-For is believed; repeatable."
        ),
    ] = None,
    anonymous: Annotated[
        Anonymous | None,
        typer.Option(
            help="Clients that need no token: auto = those of this machine, with --front-proxy none; on; off."
        ),
    ] = None,
    clients_per_address: Annotated[
        int | None,
        typer.Option(
            envvar="DIEM_WEBSOCKET_CONNECTIONS_PER_ADDRESS", min=1, max=100_000, help="Clients of one address; 50."
        ),
    ] = None,
    traffic: Annotated[
        plan.Traffic | None,
        typer.Option(
            envvar="DIEM_TRAFFIC_SINK",
            help="Where subscriptions are recorded; kafka in modes with Kafka, else files.",
        ),
    ] = None,
    brokers: Annotated[
        int | None, typer.Option(min=1, help="Local brokers: 1 or 3; default 1.", rich_help_panel=KAFKA_PANEL)
    ] = None,
    kafka: Mapping[str, object],
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME:VARIABLE=VALUE", help="A setting for one process.")
    ] = None,
    log_level: Annotated[str, typer.Option(envvar="DIEM_LOG_LEVEL", help="Level of the log files.")] = "info",
    drain_seconds: Annotated[
        float,
        typer.Option(envvar="DIEM_DRAIN_SECONDS", min=0, max=600, help="Time for clients to leave before a stop."),
    ] = 3.0,
    time_factor: Annotated[
        float,
        typer.Option(envvar="DIEM_TIME_FACTOR", min=0.1, max=100, help="Factor of all time-outs, for slow machines."),
    ] = 1.0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only warnings.")] = False,
) -> int:
    """Start every process of a mode, keep them running, stop them with Ctrl-C."""
    if not mode.uses_kafka:
        _refuse_kafka(mode, brokers, kafka)
    if config is None and "DIEM_DATA_CONFIG" not in os.environ and Path("diem.toml").is_file():
        config = Path("diem.toml")
    public, port = _public(listen, port, tls_certificate, tls_key, origin or [])
    public.check(behind_proxy=bool(front_proxy))
    options = plan.Options(
        mode=mode,
        state_dir=state_dir.absolute(),
        servers=servers if servers is not None else DEFAULT_SERVERS.get(mode, 1),
        config=_absolute(config),
        log_level=log_level,
        drain_seconds=drain_seconds,
        time_factor=time_factor,
        max_servers=max_servers,
        clones=clones,
        proxy=proxy,
        hot=_endpoints(hot or []),
        clients_per_address=clients_per_address,
        public=public,
        front_proxies=plan.parse_networks(front_proxy or [], "--front-proxy"),
        access=plan.client_access(os.environ, anonymous, anonymous_plan=plan.has_anonymous_plan(_config_file(config))),
        traffic=traffic,
        kafka=_kafka(brokers or 1, kafka),
        settings=plan.parse_settings(settings or []),
    )
    log.configure("warning", "console")
    return _up(options, Terminal(quiet=quiet), port, websocket_port, free_ports=free_ports)


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


def _config_file(config: Path | None) -> Path | None:
    """Return the configuration that the Data Service will read; None: the built-in one."""
    variable = os.environ.get("DIEM_DATA_CONFIG")
    return config if config is not None or not variable else Path(variable)


def _refuse_kafka(mode: plan.Mode, brokers: int | None, given: Mapping[str, object]) -> None:
    # Variables of the environment may be meant for other commands: they only cause a warning.
    for name in ["--brokers"] * (brokers is not None) + [option_name(name) for name in _typed(given)]:
        modes = ", ".join(each for each in plan.Mode if each.uses_kafka)
        raise plan.BadTopology(f"{name} is for --mode {modes}: mode {mode} uses no Kafka")


def _typed(given: Mapping[str, object]) -> list[str]:
    """Return the options of the command line; others are from the environment."""
    return [name for name in given if variable(KafkaSettings, name) not in os.environ]


def _endpoints(names: list[str]) -> tuple[str, ...]:
    """Return the validated names of hot endpoints, without duplicates. Raises ``BadTopology``."""
    try:
        for name in names:
            endpoints.check(name)
    except endpoints.BadName as error:
        raise plan.BadTopology(f"--hot: {error}") from None
    return tuple(dict.fromkeys(names))


def _kafka(brokers: int, given: Mapping[str, object]) -> plan.KafkaTopology:
    """Return the validated options of Kafka. Raises ``BadSettings``, ``BadTopology``."""
    chosen = kafka_settings(given)
    if chosen.kafka_bootstrap_servers is None:
        for name in _typed(given):
            if name.removeprefix("kafka_") in plan.KafkaTopology.security():
                raise plan.BadTopology(
                    f"{option_name(name)} is for --bootstrap-servers: brokers of diem up have users of their own"
                )
    named = {name: getattr(chosen, f"kafka_{name}") for name in plan.KafkaTopology.settings()}
    paths = {name: _absolute(value) for name, value in named.items() if isinstance(value, Path)}
    return plan.KafkaTopology(brokers=brokers, **{**named, **paths})


def _up(
    options: plan.Options, terminal: Terminal, port: int | None, websocket_port: int | None, *, free_ports: bool
) -> int:
    size = plan.sizes_of(options)
    slots = plan.slots(options.mode, size)
    plan.check_settings(options.settings, [slot.name for slot in slots])
    fixed = plan.fixed_ports(slots, port, websocket_port)
    launch.check_prerequisites(options)
    state = StateDir(options.state_dir)
    with lifecycle.private_files(), state.lock(), PortReservations() as reservations:
        first = ports.start_at_random(random.SystemRandom()) if free_ports else ports.start_at_default
        chosen = plan.assign_ports(slots, fixed, first, reservations.reserve)
        with terminal.downloads() as progress:
            programs = launch.prepare(options, chosen, progress)
        topology = plan.compose(options, chosen, programs)
        if not free_ports and not fixed:
            for moved in plan.moved_ports(slots, chosen, topology.servers):
                terminal.info(moved)
        _show_closed(options, terminal)
        for variable in plan.overridden(topology, os.environ):
            terminal.warn(f"{variable} has no effect here: diem up decides it (see diem up --help)")
        # Each stage has a deadline of its own; that of the life cycle only guards against a hanging supervisor.
        life = Lifecycle(drain_seconds=(len(plan.StopStage) + 1) * stage_seconds(options))
        try:
            return lifecycle.serve(life, lambda: Up(options, topology, state, terminal, reservations).run(life))
        finally:
            launch.clean(options)


def _show_closed(options: plan.Options, terminal: Terminal) -> None:
    """Say what ``auto`` means behind a front proxy, which may not say who its clients are."""
    closed = {
        "clients need a token (--anonymous on)": options.access.anonymous,
        "readers need a key (DIEM_DATA_ANONYMOUS_READS=on)": options.access.anonymous_reads,
    }
    if options.front_proxies and (who := [each for each, rule in closed.items() if rule == "auto"]):
        terminal.info(f"behind --front-proxy, all {' and all '.join(who)}, even on this machine")


def _absolute(path: Path | None) -> Path | None:
    return path.absolute() if path else None
