"""Listening sockets and their rules: binds, origins, addresses behind trusted proxies, the limit of open files."""

import contextlib
import errno
import resource
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final
from urllib.parse import urlsplit

import structlog

from diem.errors import ConfigurationError, DiemError

Network = IPv4Network | IPv6Network

BACKLOG: Final = 2048
MAX_HOPS: Final = 32
"""Entries of X-Forwarded-For that are looked at; no real chain of proxies is longer."""


@dataclass(eq=False)
class RefusedBind(ConfigurationError):
    """A listener would be open to the network without anything that says who may use it."""

    template = "{what} would listen on {host} for anybody: configure keys or tokens, or bind 127.0.0.1"

    host: str
    what: str


@dataclass(eq=False)
class BindFailed(ConfigurationError):
    """The operating system does not let this process listen on an address; `reason` says why."""

    template = "cannot listen on {host}:{port}: {reason}"

    host: str
    port: int
    reason: str


@dataclass(eq=False)
class PortInUse(DiemError):
    """Another process listens on the port; it may go away, so the attempt may be repeated."""

    template = "port {port} on {host} is taken by another process"
    retriable = True

    host: str
    port: int


def is_loopback(address: str) -> bool:
    """Whether an address (or the name `localhost`) can only be reached from this machine."""
    if address.lower() == "localhost":
        return True
    parsed = _parse(address)
    return parsed is not None and parsed.is_loopback


def is_in(address: str, networks: Sequence[Network]) -> bool:
    """Whether an address is in one of ``networks``; what is no address is in none."""
    parsed = _parse(address)
    return parsed is not None and _is_in(parsed, networks)


def check_bind(host: str, *, authenticated: bool, what: str) -> None:
    """Refuse to open `what` beyond this machine unless it authenticates its users (docs/protocol.md section 7).

    Raises:
        RefusedBind: `host` is not a loopback address and `authenticated` is false.
    """
    if not authenticated and not is_loopback(host):
        raise RefusedBind(host, what)


def bind(host: str, port: int) -> socket.socket:
    """Return a listening, non-blocking socket; port 0 takes a free one (see `getsockname`).

    Name resolution may block, so processes call it while they start.

    Raises:
        PortTaken: another process listens there.
        BindFailed: the address is not this machine's, the name is unknown, or the port is privileged.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise BindFailed(host, port, error.strerror or "unknown name") from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        # Two sockets may be bound to one port with SO_REUSEADDR: only listen() finds out who came first.
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(host, port) from error
        raise BindFailed(host, port, error.strerror or str(error)) from error
    listener.setblocking(False)
    return listener


def client_address(peer: str, x_forwarded_for: str | None, trusted: Sequence[Network]) -> str:
    """Return the address of the client behind the proxies that we trust.

    The rightmost address of X-Forwarded-For that no trusted proxy has; the header counts only when the peer itself
    is trusted, and ends at the first entry that is not an address (what lies left of it may be forged).
    """
    current = _parse(peer)
    if current is None or not x_forwarded_for:
        return peer if current is None else str(current)
    for hop in reversed(x_forwarded_for.rsplit(",", MAX_HOPS)[-MAX_HOPS:]):
        if not _is_in(current, trusted):
            break
        parsed = _parse(hop.strip())
        if parsed is None:
            break
        current = parsed
    return str(current)


def canonical_origin(text: str) -> str:
    """Return an origin as browsers write it: lower case, without a default port.

    Raises:
        ValueError: it is not exactly `http(s)://host[:port]`.
    """
    parts = urlsplit(text.strip().lower())
    if parts.scheme not in {"http", "https"} or not parts.hostname or "@" in parts.netloc:
        raise ValueError(f"an origin is http(s)://host[:port], not {text!r}")
    if parts.path or parts.query or parts.fragment or text.rstrip().endswith(("?", "#")):
        raise ValueError(f"an origin has no path: {text!r}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    default = 443 if parts.scheme == "https" else 80
    return f"{parts.scheme}://{host}" + (f":{parts.port}" if parts.port not in {None, default} else "")


def origin_allowed(origin: str | None, *, allowed: frozenset[str], page_port: int | None, loopback_bind: bool) -> bool:
    """Whether a browser's page of this origin may connect: exact scheme, host and port, never a pattern.

    `allowed` holds canonical origins. On a loopback bind this machine's names with the page's port are allowed too.
    A missing origin is not allowed here: whether such a client may connect depends on its token or address.
    """
    if origin is None:
        return False
    if origin in allowed:
        return True
    if not loopback_bind or page_port is None:
        return False
    port = "" if page_port == 80 else f":{page_port}"
    return origin in {f"http://{host}{port}" for host in ("localhost", "127.0.0.1", "[::1]")}


def _is_in(address: IPv4Address | IPv6Address, networks: Sequence[Network]) -> bool:
    return any(address in network for network in networks)


def _parse(text: str) -> IPv4Address | IPv6Address | None:
    """Parse an address with or without brackets, port and zone; IPv4 inside IPv6 becomes IPv4."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


OTHER_FILES: Final = 256
"""What a process has open besides its connections: listeners, logs, links to other processes."""


def raise_open_files(wanted: int) -> int:
    """Raise the process's own limit to ``wanted`` where the system allows it; returns the limit that holds now.

    The usual limit of 1,024 is for programs that call ``select``, which event loops of ours do not.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted if soft == resource.RLIM_INFINITY else soft
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        return allowed
    return soft


def allow_connections(clients: int, links: int = 0) -> None:
    """Raise the limit for so many clients, and links of theirs; warn if it is too low for the clients alone."""
    allowed = raise_open_files(clients + links + OTHER_FILES)
    if allowed < clients + OTHER_FILES:
        structlog.get_logger("process").warning(
            "the limit of open files is too low for the clients", open_files=allowed, clients=clients
        )
