"""The command ``diem config``: every setting, or the files that run a mode on several hosts."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Final

import typer

from deploy import topology as plan
from deploy.cli import up
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
    TlsKeyOption,
    clients_of,
    clones_option,
    max_servers_option,
    read_config,
    servers_option,
    traffic_option,
)
from deploy.cli.options import ALL_KAFKA, hot_endpoints, kafka_settings, topology_fields, with_kafka_options
from deploy.cli.system_table import TABLE, read_defaults, reference_lines
from deploy.terminal import DEFAULT_STATE_DIR, Terminal, amount
from deploy.topology.ports import start_at_default
from diem.process.settings import PROCESSES, ProcessSettings, Setting, reference, settings_of
from diem.process.tls import certificate_names, server_context
from tools.hosts import env_file, inventory
from tools.hosts.assignment import USUAL, HostedSystem, Installation, assign, default_sizes
from tools.hosts.output import write_system
from tools.hosts.readme import NAME as README
from tools.hosts.verification import verify

_SAFE_PATH: Final = re.compile(r"/[A-Za-z0-9._/+@-]*")
POSTGRESQL: Final = "postgresql://"
DRAIN_S: Final = 10.0


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command()(with_kafka_options(config, ALL_KAFKA))


def config(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[PROCESS | MODE | system]",
            help="Settings of one process, default: all; what a mode sets; or the keys of [system] in diem.toml.",
        ),
    ] = None,
    *,
    hosts: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=ADDRESS,... | FILE",
            help="Hosts, the first one for everything but servers; or a TOML file, with the roles of each.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Directory for the files of all hosts, with keys."),
    ] = None,
    standby: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Host with a Data Service that takes over the store."),
    ] = None,
    program: Annotated[Path, typer.Option(metavar="FILE", help="DIEM on the hosts.")] = USUAL.program,
    state_dir: Annotated[Path, typer.Option(metavar="DIR", help="Keys and state on the hosts.")] = USUAL.state_dir,
    config_dir: Annotated[Path, typer.Option(metavar="DIR", help="Configuration on the hosts.")] = USUAL.config_dir,
    user: Annotated[str, typer.Option(metavar="NAME", help="User of the processes.")] = USUAL.user,
    servers: Annotated[int | None, servers_option("one for each host that has servers, in a composite 2")] = None,
    max_servers: Annotated[int | None, max_servers_option("the initial number")] = None,
    clones: Annotated[int | None, clones_option("one for each host that has servers")] = None,
    proxy: ProxyOption = None,  # noqa: ARG001 - checked by its type
    hot: HotOption = None,
    sources: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            is_eager=True,
            callback=lambda context, value: read_defaults(context, value) or value,
            help="Data sources, copied to the Data Service, and options. Default: a simulated market.",
        ),
    ] = None,
    database_url: Annotated[
        str | None,
        typer.Option(
            envvar=["DIEM_DATA_DATABASE_URL", "DIEM_DATABASE_URL"],
            metavar="URL",
            help="Store: postgresql://user:password@host:port/database, which a stand-by needs. Default: SQLite.",
        ),
    ] = None,
    port: PortOption = None,
    listen: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address for clients on each host.")
    ] = "0.0.0.0",  # with TLS, or behind a front proxy
    tls_certificate: Annotated[
        Path | None,
        typer.Option(
            hidden=True,
            metavar="FILE",
            help="Certificate chain (PEM) on the hosts that clients connect to; if it is here, its names are read.",
        ),
    ] = None,
    tls_key: TlsKeyOption = None,
    origin: OriginOption = None,
    front_proxy: FrontProxyOption = None,
    anonymous: AnonymousOption = None,
    clients_per_address: ClientsPerAddressOption = None,
    traffic: Annotated[plan.Traffic | None, traffic_option("off")] = None,
    kafka: Mapping[str, object],
    settings: SettingsOption = None,
    log_level: LogLevelOption = "info",
    drain_seconds: DrainSecondsOption = DRAIN_S,
) -> int:
    """Print every setting of the processes: variable, type, default, meaning; of a mode, what it sets for each process.

    With --hosts, write the files that run a mode on several hosts: variables, systemd units, nginx.conf and keys for
    each, checked and ready to be copied there. Run it again after changes: keys are kept.
    """
    if hosts is None:
        if out is not None:
            raise typer.BadParameter("--out goes with --hosts")
        modes = [mode for mode in plan.Mode if mode == name]
        lines = mode_lines(modes[0]) if modes else config_lines([name] if name else PROCESSES)
        for line in reference_lines(*_command(up)) if name == TABLE else lines:
            typer.echo(line)
        return 0
    if name not in set(plan.Mode):
        raise typer.BadParameter(f"with --hosts, config takes a mode: {', '.join(plan.Mode)}")
    if out is None:
        raise typer.BadParameter("--hosts needs --out, a directory for the files of all hosts")
    mode = plan.Mode(name)
    if mode is plan.Mode.ALL_TO_ALL:
        raise plan.BadTopology("all-to-all is a baseline for measurements on one machine")
    machines = inventory.with_roles(_inventory(hosts), mode, standby)
    if any(inventory.HostRole.STANDBY in host.roles for host in machines):
        _require_postgresql(database_url)
    usual_servers, usual_clones = default_sizes(mode, machines)
    servers = servers if servers is not None else usual_servers
    clones = clones if clones is not None else usual_clones
    public = _public(listen, tls_certificate, tls_key, origin or [])
    clients = clients_of(public, front_proxy, anonymous, clients_per_address, sources)
    _require_name(clients.public)
    options = plan.Options(
        mode,
        state_dir,
        scaling=plan.Scaling(
            servers, max_servers if max_servers is not None else _spareless(mode, servers, clones), clones
        ),
        clients=clients,
        content=plan.Content(
            config=config_dir / "diem.toml" if sources is not None else None, hot=hot_endpoints(hot or [])
        ),
        durations=plan.Durations(drain_seconds),
        kafka=_kafka(mode, kafka),
        traffic=traffic if traffic is not None or mode.uses_kafka else plan.Traffic.OFF,
        log_level=log_level,
        settings=plan.parse_settings(settings or []),
    )
    where = Installation(
        _on_host(program, "--program"), _on_host(state_dir, "--state-dir"), _on_host(config_dir, "--config-dir"), user
    )
    system = assign(options, machines, where, port)
    return _write(system, out, database_url, read_config(sources) if sources is not None else None)


def _command(module: ModuleType) -> tuple[Any, typer.Context]:
    """Return the only command of a module, with a context for writing its help."""
    cli = typer.Typer(rich_markup_mode=None)
    module.register(cli)
    command: Any = typer.main.get_command(cli)
    return command, typer.Context(command)


def _write(system: HostedSystem, out: Path, database_url: str | None, sources: str | None) -> int:
    terminal = Terminal()
    changes = write_system(system, out, database_url, sources)
    missing = verify(system, out)
    for name in changes.written:
        terminal.info(f"written  {name}")
    for name in changes.removed:
        terminal.info(f"removed  {name}")
    services = sum(len(system.active(host)) for host in system.hosts)
    terminal.info(f"{amount(services, 'service')} on {amount(len(system.hosts), 'host')}: read {out / README}")
    if missing:
        terminal.warn(f"not checked, because it is not installed here: {' and '.join(missing)}")
    return 0


def _inventory(text: str) -> tuple[inventory.Host, ...]:
    is_file = text.endswith(".toml") or Path(text).is_file()
    return inventory.load_hosts(Path(text)) if is_file else inventory.parse_hosts(text)


def _require_postgresql(database_url: str | None) -> None:
    if database_url is None or not database_url.startswith(POSTGRESQL):
        raise plan.BadTopology(
            "a stand-by on another host needs a store that both reach: --database-url postgresql://..."
        )


def _spareless(mode: plan.Mode, servers: int, clones: int | None) -> int | None:
    if mode is plan.Mode.SINGLE:
        return None
    return clones if mode is plan.Mode.XZ else servers


def _public(listen: str, certificate: Path | None, key: Path | None, origins: list[str]) -> plan.PublicAddress:
    address, port = plan.parse_listen(listen)
    if port is not None:
        raise plan.BadTopology("--listen is an address here: its port is --port")
    named: tuple[str, ...] = ()
    if certificate is not None:
        _on_host(certificate, "--tls-certificate")
        if key is not None:
            _on_host(key, "--tls-key")
        if certificate.exists():
            server_context(certificate, key)
            named = certificate_names(certificate)
    return plan.PublicAddress(address, certificate, key, plan.parse_origins(origins), named)


def _require_name(public: plan.PublicAddress) -> None:
    if not public.own_origins and not public.names:
        reason = "the certificate is not here, or has no names" if public.certificate else "the front proxy has a name"
        raise plan.BadTopology(f"--origin https://NAME is needed: {reason}, and pages connect by it")


def _on_host(path: Path, option: str) -> Path:
    if not _SAFE_PATH.fullmatch(str(path)):
        raise plan.BadTopology(
            f"{option} is an absolute path on the hosts, without blanks and quotes, not {str(path)!r}"
        )
    return path


def _kafka(mode: plan.Mode, given: Mapping[str, object]) -> plan.KafkaTopology:
    chosen = kafka_settings(given)
    if not mode.uses_kafka:
        return plan.KafkaTopology()
    if chosen.kafka_bootstrap_servers is None:
        raise plan.BadTopology(f"mode {mode} uses a Kafka of yours: --bootstrap-servers HOST:PORT,...")
    named = topology_fields(chosen)
    for field, value in named.items():
        if isinstance(value, Path):
            _on_host(value, f"--{field.replace('_', '-')}")
    return plan.KafkaTopology(**named)


def config_lines(names: Iterable[str]) -> Iterator[str]:
    """Describe the settings shared by all processes, then those of ``names``. Raises ``UnknownProcess``."""
    own = [(name, reference(settings_of(name), shared=False)) for name in names]
    for title, settings in [("every process", reference(ProcessSettings)), *own]:
        yield f"# {title}"
        for setting in settings:
            yield from _lines(setting)
        yield ""


def mode_lines(mode: plan.Mode) -> Iterator[str]:
    """Yield the variables of a mode's processes under ``diem up``, on the documented ports."""
    options = plan.Options(mode, DEFAULT_STATE_DIR.absolute())
    wanted = plan.slots(mode, plan.sizes_of(options))
    ports = plan.assign_ports(wanted, {}, start_at_default, lambda _port: True)
    topology = plan.compose(options, ports, plan.Programs(()))
    for process in topology.active(topology.servers):
        if process.env:
            yield env_file.render(process.env, process.name)


def _lines(setting: Setting) -> Iterator[str]:
    yield f"{setting.variable}  ({setting.type}; default: {setting.default})"
    yield f"    {setting.description}"
