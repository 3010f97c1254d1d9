"""All files of one host except its keys; pure except for reading the configuration of the sources."""

from pathlib import Path
from typing import Final, NamedTuple

from deploy.system.launch import PreparationFailed
from deploy.topology import Planned
from diem.errors import install_command
from tools.hosts import env_file, units
from tools.hosts.assignment import NGINX_DIR, HostedSystem
from tools.hosts.inventory import Host

PRIVATE: Final = 0o600
PUBLIC: Final = 0o644
SOURCES: Final = "diem.toml"


class HostFile(NamedTuple):
    """A file in the directory of a host."""

    path: str
    content: str
    mode: int = PUBLIC


def host_files(system: HostedSystem, host: Host, database_url: str | None, sources: str | None) -> list[HostFile]:
    """Return the files of a host: variables, units, configuration of nginx and Data Service, and instructions.

    Args:
        system: the mode on its hosts.
        host: one of them.
        database_url: of the store; None: the default.
        sources: content of diem.toml; None: there is none.

    Raises:
        BadTopology: a value cannot be written.
        PreparationFailed: what renders nginx's configuration is not installed.
    """
    own, where = system.processes(host), system.installation
    found = [_unit(units.UNIT, units.render_unit(where, system.options.durations.drain_seconds))]
    for each in own:
        found.append(_unit(f"{each.name}.conf", units.render_drop_in(each, own, where)))
        if each.process != "nginx":
            found.append(HostFile(f"etc/{each.name}.env", _variables(each, database_url), PRIVATE))
    found.append(_unit(units.TARGET, units.render_target(host.label, system.active(host))))
    if system.has(host, "nginx"):
        found.append(HostFile("etc/nginx.conf", f"{units.WRITTEN}\n{nginx_conf(system)}"))
    if sources is not None and system.has(host, "data"):
        found.append(HostFile(f"etc/{SOURCES}", sources, PRIVATE))
    found.append(HostFile("install.sh", units.fill("install.sh", where, host=host.label), 0o755))
    return found


def nginx_conf(
    system: HostedSystem, directory: Path = NGINX_DIR, certificate: Path | None = None, key: Path | None = None
) -> str:
    """Return nginx's configuration; a directory and a certificate of this machine replace those of the hosts.

    Raises:
        PreparationFailed: what renders it is not installed.
    """
    try:
        from deploy import nginx  # noqa: PLC0415  # what renders the configuration is an extra
    except ImportError:
        raise PreparationFailed(
            f"nginx's configuration needs nginx-config-builder, which is not installed: {install_command('kafka')}"
        ) from None
    options = system.options
    files = {"certificate": certificate, "key": key} if options.clients.public.certificate and certificate else {}
    plan = nginx.NginxPlan.of(
        options.mode,
        options.clients,
        system.ports,
        directory,
        workers=nginx.MAX_WORKERS,
        open_files=nginx.MAX_OPEN_FILES,
        cache=directory / "cache" if options.public_reads else None,
        **files,
    )
    return nginx.render(plan)


def _unit(name: str, text: str) -> HostFile:
    return HostFile(f"systemd/{name}", text)


def _variables(planned: Planned, database_url: str | None) -> str:
    secret = {"DIEM_DATA_DATABASE_URL": database_url} if database_url and planned.process == "data" else {}
    comments = (
        units.WRITTEN.removeprefix("# "),
        f"Variables of your own: local.env (`diem config {planned.process}`).",
    )
    return env_file.render({**planned.env, **secret}, *comments)
