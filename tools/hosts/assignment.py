"""Assignment of a mode's processes to hosts, with the resulting addresses and settings; pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from deploy.topology import (
    BadTopology,
    Mode,
    Options,
    Planned,
    Ports,
    Programs,
    Slot,
    Topology,
    compose,
    sizes_of,
    slots,
)
from diem.process.modes import number_in
from tools.hosts.inventory import Host, HostRole

NGINX: Final = "/usr/sbin/nginx"
NGINX_DIR: Final = Path("/run/diem-nginx")
"""Temporary files and cached responses of nginx, removed by systemd when it stops, as rights may change."""


@dataclass(frozen=True, slots=True)
class Installation:
    """Paths on every host. All are absolute."""

    program: Path = Path("/opt/diem/.venv/bin/diem")
    state_dir: Path = Path("/var/lib/diem")
    """Keys, store and other files written by processes."""
    config_dir: Path = Path("/etc/diem")
    user: str = "diem"


USUAL: Final = Installation()


@dataclass(frozen=True, slots=True)
class HostedSystem:
    """A mode on several hosts."""

    options: Options
    installation: Installation
    hosts: tuple[Host, ...]
    topology: Topology
    ports: Mapping[str, Ports]
    page_port: int
    host_of: Mapping[str, Host]
    """Host by name of the process."""

    def processes(self, host: Host) -> list[Planned]:
        """Return the processes of a host, dependencies first, including spare ones."""
        own = [each for each in self.topology.processes if self.host_of[each.name] == host]
        return sorted(own, key=lambda each: each.stage)

    @property
    def wanted(self) -> frozenset[str]:
        """Names of the initial processes; the others are spare."""
        return frozenset(each.name for each in self.topology.active(self.topology.servers))

    def active(self, host: Host) -> list[Planned]:
        """Return the initial processes of a host."""
        wanted = self.wanted
        return [each for each in self.processes(host) if each.name in wanted]

    def has(self, host: Host, *processes: str) -> bool:
        """Return whether a host has a process of one of these kinds."""
        return any(each.process in processes for each in self.processes(host))


def assign(options: Options, hosts: Sequence[Host], installation: Installation, page_port: int | None) -> HostedSystem:
    """Distribute the processes of a mode over hosts, by their roles, and compose the settings of each.

    Servers and composites are dealt out in turn, each bridge with its server.

    Args:
        options: of the mode; the roles determine the numbers of stand-bys, proxies and nginx.
        hosts: with their roles.
        installation: where things are on every host.
        page_port: of the page; None: the documented one.

    Raises:
        BadTopology: the options do not fit the mode.
    """
    having = {role: [host for host in hosts if role in host.roles] for role in HostRole}
    options = replace(
        options,
        state_dir=installation.state_dir,
        clients=replace(options.clients, is_local=False),
        scaling=replace(
            options.scaling,
            standbys=len(having[HostRole.STANDBY]),
            proxies=max(1, len(having[HostRole.PROXY])),
            balancers=max(1, len(having[HostRole.NGINX])),
        ),
    )
    wanted = slots(options.mode, sizes_of(options))
    host_of = {slot.name: _host_of(slot, having) for slot in wanted}
    page = "nginx" if options.mode.behind_nginx else "data"
    ports = {
        slot.name: Ports(
            page_port if slot.process == page and page_port is not None else slot.public,
            slot.internal,
            host_of[slot.name].address,
            host_of[slot.name].public,
        )
        for slot in wanted
    }
    _check_ports(ports)
    nginx = (NGINX, "-p", str(NGINX_DIR), "-c", str(installation.config_dir / "nginx.conf"), "-e", "stderr")
    programs = Programs((str(installation.program),), {slot.name: nginx for slot in wanted if slot.process == "nginx"})
    topology = compose(options, ports, programs)
    return HostedSystem(options, installation, tuple(hosts), topology, ports, ports[page].public or 0, host_of)


def _host_of(slot: Slot, having: Mapping[HostRole, Sequence[Host]]) -> Host:
    data = [*having[HostRole.DATA], *having[HostRole.STANDBY]]
    number = int(number_in(slot.name) or 1)
    own = having[HostRole(slot.process)] if slot.process in set(HostRole) else having[HostRole.SERVERS]
    found = data if slot.process == "data" else own or data
    return found[(number - 1) % len(found)]


def _check_ports(ports: Mapping[str, Ports]) -> None:
    used: dict[tuple[str, int], str] = {}
    for name, own in ports.items():
        for port in (own.public, own.internal):
            if port is not None and used.setdefault((own.host, port), name) != name:
                raise BadTopology(f"--port {port}: {used[own.host, port]} and {name} would both use it on {own.host}")


def default_sizes(mode: Mode, hosts: Sequence[Host]) -> tuple[int, int | None]:
    """Return the default numbers of servers and of clones: one server, or one composite of two pairs, for each host."""
    places = max(1, sum(HostRole.SERVERS in host.roles for host in hosts))
    if mode is Mode.SINGLE:
        return 1, None
    if mode.edge == "composite":
        return 2, places if mode is Mode.XZ else None
    return places, None
