"""Hosts and their roles, as given on the command line or in a TOML file."""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

from deploy.topology import BadTopology, Mode

MAX_HOSTS: Final = 64
_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?")
_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,250}[A-Za-z0-9])?")


class HostRole(StrEnum):
    """Role of a host: the processes it may run."""

    DATA = "data"
    STANDBY = "standby"
    """A stand-by Data Service, taking over the store."""
    BROADCAST = "broadcast"
    METADATA = "metadata"
    NGINX = "nginx"
    PROXY = "proxy"
    SERVERS = "servers"
    """WebSocket servers with their bridges, or composites."""


_CENTRAL: Final = (HostRole.DATA, HostRole.BROADCAST, HostRole.METADATA, HostRole.NGINX, HostRole.PROXY)
"""Roles of the first host by default."""
_SEVERAL: Final = frozenset({HostRole.NGINX, HostRole.PROXY, HostRole.SERVERS, HostRole.STANDBY})
"""Roles allowed on several hosts."""


@dataclass(frozen=True, slots=True)
class Host:
    """A machine: its label, its address for other hosts, and its name for clients."""

    label: str
    address: str
    public: str
    roles: frozenset[HostRole] = field(default_factory=frozenset)


def needed_roles(mode: Mode) -> frozenset[HostRole]:
    """Return the roles that a mode needs."""
    own = {role for role in HostRole if role in mode.processes}
    # In mode single, servers are beside the Data Services.
    return frozenset(own if mode is Mode.SINGLE else {*own, HostRole.SERVERS})


def parse_hosts(text: str) -> tuple[Host, ...]:
    """Return the hosts of ``a=10.0.0.1,b=10.0.0.2`` or of addresses alone, without roles.

    Raises:
        BadTopology: a part is neither.
    """
    parts = [part.strip() for part in text.split(",")]
    found = [
        (part.partition("=") if "=" in part else (f"host{number}", "=", part)) for number, part in enumerate(parts, 1)
    ]
    return _checked([_host({"name": label.strip(), "address": address.strip()}) for label, _, address in found])


def load_hosts(file: Path) -> tuple[Host, ...]:
    """Return the hosts of a TOML file with a table ``[[host]]`` for each: name, address, public, roles.

    Raises:
        BadTopology: the file cannot be read, or has something else.
    """
    try:
        read = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        raise BadTopology(f"--hosts {file}: {reason}") from None
    tables = read.pop("host", None)
    if read or not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise BadTopology(f"--hosts {file}: it has a table [[host]] for each host, and nothing else")
    return _checked([_host(table) for table in tables])


def with_roles(hosts: Sequence[Host], mode: Mode, standby: str | None = None) -> tuple[Host, ...]:
    """Return the hosts with their roles: the given ones, else all but the servers on the first host.

    Args:
        hosts: of the inventory.
        mode: determines the needed roles; others are dropped.
        standby: label of a host with a stand-by.

    Raises:
        BadTopology: a needed role is missing, or several hosts have an exclusive one.
    """
    needed = needed_roles(mode) | {HostRole.STANDBY}
    if any(host.roles for host in hosts):
        given = [host.roles for host in hosts]
    else:
        others = [frozenset({HostRole.SERVERS}) for _ in hosts[1:]]
        given = [frozenset(_CENTRAL if others else (*_CENTRAL, HostRole.SERVERS)), *others]
    if standby is not None:
        if standby not in {host.label for host in hosts}:
            raise BadTopology(f"--standby {standby}: no host has this name")
        extra = [frozenset({HostRole.STANDBY} if host.label == standby else ()) for host in hosts]
        given = [own | more for own, more in zip(given, extra, strict=True)]
    found = tuple(replace(host, roles=own & needed) for host, own in zip(hosts, given, strict=True))
    for role in sorted(needed - {HostRole.STANDBY}):
        labels = [host.label for host in found if role in host.roles]
        if not labels:
            raise BadTopology(f"no host has the role {role}, which mode {mode} needs")
        if len(labels) > 1 and role not in _SEVERAL:
            raise BadTopology(f"{' and '.join(labels)} have the role {role}: only one host may have it")
    if both := [host.label for host in found if {HostRole.DATA, HostRole.STANDBY} <= host.roles]:
        raise BadTopology(f"{both[0]} has the Data Service already: its stand-by is on another host")
    return found


def _host(table: dict[str, Any]) -> Host:
    if unknown := set(table) - {"name", "address", "public", "roles"}:
        raise BadTopology(f"--hosts: a host has name, address, public and roles, not {min(unknown)!r}")
    label, given, roles = table.get("name"), table.get("address"), table.get("roles", [])
    if not isinstance(label, str) or not _LABEL.fullmatch(label):
        raise BadTopology(f"--hosts: the name of a host has lower-case letters, digits and '-', not {label!r}")
    try:
        address = ip_address(given if isinstance(given, str) else "")
    except ValueError:
        # Allow-lists have addresses, because others could change names.
        raise BadTopology(f"--hosts: host {label} needs an IP address (NAME=ADDRESS), not {given!r}") from None
    if address.is_unspecified or address.is_multicast:
        raise BadTopology(f"--hosts: {address} is no address of a host")
    public = table.get("public", f"[{address}]" if address.version == 6 else str(address))
    if not isinstance(public, str) or ("public" in table and not _NAME.fullmatch(public)):
        raise BadTopology(f"--hosts: public of {label} is the name by which clients reach it, not {public!r}")
    if not isinstance(roles, list) or not {*map(str, roles)} <= set(HostRole):
        raise BadTopology(f"--hosts: roles of {label} are {', '.join(HostRole)}, not {roles!r}")
    return Host(label, str(address), public, frozenset(map(HostRole, roles)))


def _checked(hosts: Sequence[Host]) -> tuple[Host, ...]:
    if not 1 <= len(hosts) <= MAX_HOSTS:
        raise BadTopology(f"--hosts: 1 to {MAX_HOSTS} hosts, not {len(hosts)}")
    for what, values in (("name", [host.label for host in hosts]), ("address", [host.address for host in hosts])):
        if twice := [value for value in values if values.count(value) > 1]:
            raise BadTopology(f"--hosts: two hosts have the {what} {twice[0]}")
    return tuple(hosts)
