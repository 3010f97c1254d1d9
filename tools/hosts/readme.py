"""Installation instructions: prerequisites, and the order of start and upgrades."""

from collections.abc import Iterable
from typing import Final

from deploy.terminal import amount
from deploy.topology import Planned
from tools.hosts.assignment import NGINX, HostedSystem
from tools.hosts.inventory import Host
from tools.hosts.units import SYSTEM_STATE, fill, unit_name

NAME: Final = "README.txt"


def render_readme(system: HostedSystem) -> str:
    """Return the steps: provide, copy and start, in order."""
    places = (
        f"{host.label}  {host.address}  {', '.join(_names(system, host)) or 'nothing runs here'}"
        for host in system.hosts
    )
    spare = _spare(system)
    return (
        fill(
            NAME,
            system.installation,
            mode=system.topology.mode,
            hosts=amount(len(system.hosts), "host"),
            provided=_indented(_provided(system)),
            places=_indented(places),
            starts=_indented(f"{number}. {host.label}" for number, host in enumerate(_in_order(system), 1)),
            page=page_of(system),
            upgrades=", ".join(_upgrade_order(system)),
            spare=f"{_SPARE}{_indented(spare)}" if spare else "",
        ).rstrip()
        + "\n"
    )


_SPARE: Final = """
Spare services, by host. `systemctl enable --now` on that host adds a server, with its bridge; `systemctl
disable --now` of both, the server named first, takes it out again: its clients and endpoints are at
others before it ends.

"""


def _indented(lines: Iterable[str]) -> str:
    return "\n".join(f"   {line}" for line in lines)


def _provided(system: HostedSystem) -> list[str]:
    where, options = system.installation, system.options
    lines = [f"DIEM, so that {where.program} runs; clocks that agree (NTP)"]
    if options.mode.behind_nginx:
        lines.append(f"where nginx runs: the package nginx ({NGINX}), its own service disabled")
    public = options.clients.public
    if public.certificate is not None:
        files = " and ".join(str(file) for file in (public.certificate, public.key) if file)
        lines.append(f"where clients connect: {files}, readable by user {where.user}")
    if not where.state_dir.is_relative_to(SYSTEM_STATE):
        lines.append(f"{where.state_dir}, mode 0700, of user {where.user}")
    kafka = options.kafka
    secrets = (kafka.sasl_password_file, kafka.ca_file, kafka.certificate_file, kafka.key_file)
    if named := ", ".join(str(file) for file in secrets if file is not None):
        lines.append(f"for Kafka: {named}, the secret ones with mode 0600, of user {where.user}")
    closed = sorted({own.internal for own in system.ports.values() if own.internal is not None})
    lines.append("a firewall: internal ports are for these hosts alone, over a private network or a tunnel")
    lines.append(f"(internal: {_ranges(closed)}; clients: {_ranges(sorted(_public_ports(system)))})")
    return lines


def _public_ports(system: HostedSystem) -> set[int]:
    urls = [system.topology.page_url, *system.topology.websocket_urls, *system.topology.metadata_urls]
    return {int(url.rpartition(":")[2].partition("/")[0]) for url in urls}


def _ranges(ports: list[int]) -> str:
    return ", ".join(map(str, ports))


def page_of(system: HostedSystem) -> str:
    """Return the origin of the page."""
    public = system.options.clients.public
    origins = public.own_origins or public.page_origins(system.page_port)
    return origins[0] if origins else system.topology.page_url


def _names(system: HostedSystem, host: Host) -> list[str]:
    return [each.name for each in system.active(host)]


def _in_order(system: HostedSystem) -> list[Host]:
    first = {host.label: min((each.stage for each in system.active(host)), default=99) for host in system.hosts}
    return sorted((host for host in system.hosts if _names(system, host)), key=lambda host: first[host.label])


_UPGRADES: Final = ("data", "broadcast", "websocket", "nginx")
_UPGRADES_WITH_KAFKA: Final = ("bridge", "websocket", "composite", "data", "metadata", "proxy", "nginx")
"""Kinds of processes in the order of upgrades: the dialled before the dialling, readers of Kafka before writers."""


def _upgrade_order(system: HostedSystem) -> list[str]:
    """Return the names of all processes in the order of docs/operations.md section 4.1."""
    has_kafka = system.topology.mode.uses_kafka
    order = _UPGRADES_WITH_KAFKA if has_kafka else _UPGRADES
    paired = {"bridge", "websocket"} if has_kafka else set[str]()

    def place(planned: Planned) -> tuple[bool, int, int, int]:
        number = int(planned.name.rpartition("-")[2]) if "-" in planned.name else 1
        # The stand-by first, to take over while the Data Service restarts.
        rank = -number if planned.process == "data" else number
        is_paired = planned.process in paired
        return not is_paired, number if is_paired else 0, order.index(planned.process), rank

    return [each.name for each in sorted(system.topology.active(system.topology.servers), key=place)]


def _spare(system: HostedSystem) -> list[str]:
    """Return the spare services of each host, as text, in stop order."""
    wanted = system.wanted
    spare = {
        host.label: [
            unit_name(each.name)
            for each in sorted(system.processes(host), key=lambda each: -each.stage)
            if each.name not in wanted
        ]
        for host in system.hosts
    }
    return [f"{label}  {' '.join(names)}" for label, names in spare.items() if names]
