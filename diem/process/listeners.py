"""Listening sockets and their rules: binds, addresses, origins, the limit of open files."""

import contextlib
import errno
import re
import resource
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final
from urllib.parse import urlsplit

from diem.errors import ConfigurationError, DiemError

Network = IPv4Network | IPv6Network

BACKLOG: Final = 2048
"""Connections that wait in the kernel: more would wait longer for a slow server than a client does (10 s)."""
CACHED_ADDRESSES: Final = 4096
"""Number of cached parsed addresses: parsing one costs a third of an answer from memory."""


@dataclass(eq=False)
class RefusedBind(ConfigurationError):
    """A listener would be exposed to the network without authentication."""

    template = "{what} would listen on {host} for anybody: configure token_keys, set anonymous=on, or bind 127.0.0.1"

    host: str
    what: str


@dataclass(eq=False)
class BindFailed(ConfigurationError):
    """The operating system refuses to listen on an address for good, for ``reason``."""

    template = "cannot listen on {host}:{port}: {reason}"

    host: str
    port: int
    reason: str


@dataclass(eq=False)
class AddressUnavailable(DiemError):
    """The machine does not have an address, or the name is unknown; retriable, because a tunnel may come up."""

    template = "cannot listen on {host}:{port} now ({reason}): is its interface up, or is the address of another host?"
    retriable = True

    host: str
    port: int
    reason: str


@dataclass(eq=False)
class PortInUse(DiemError):
    """Another process listens on the port; retriable, because it may end."""

    template = "port {port} on {host} is taken by another process"
    retriable = True

    host: str
    port: int


_HOST: Final = re.compile(r"(\[[^\[\]]*\]|[^\[\]:@/?#\\\s]*)(?::[0-9]*)?")
"""``host`` or ``host:port`` (RFC 3986, section 3.2), without a user."""


def host_of(text: str) -> str | None:
    """Return the host in ``host`` or ``host:port``, IPv6 in brackets; None for any other text."""
    found = _HOST.fullmatch(text)
    return None if found is None else found[1]


@lru_cache(CACHED_ADDRESSES)
def parse_address(text: str) -> IPv4Address | IPv6Address | None:
    """Parse an address with or without brackets, port and zone; IPv4 inside IPv6 becomes IPv4.

    Return None for text that is not an address: only IPv6 has brackets and zones.
    """
    address: IPv4Address | IPv6Address | None
    try:
        if text.startswith("["):
            host = host_of(text)
            address = None if host is None else IPv6Address(host[1:-1])
        else:
            address = ip_address((host_of(text) or "") if text.count(":") == 1 else text)
    except ValueError:
        return None
    if not isinstance(address, IPv6Address):
        return address
    # Without the zone.
    return address.ipv4_mapped or IPv6Address(int(address))


@lru_cache(CACHED_ADDRESSES)
def canonical_address(address: str) -> str:
    """Return the canonical text of an address readable by :func:`parse_address`; any other text unchanged."""
    parsed = parse_address(address)
    return address if parsed is None else str(parsed)


@lru_cache(CACHED_ADDRESSES)
def is_loopback(address: str) -> bool:
    """Return whether an address, or the name ``localhost``, is reachable only from this machine."""
    if address.lower() == "localhost":
        return True
    parsed = parse_address(address)
    return parsed is not None and parsed.is_loopback


def is_of_this_machine(host: str) -> bool:
    """Return whether a URL's host is this machine: a loopback address, ``localhost`` or a name below it."""
    return is_loopback(host) or host.endswith(".localhost")


def is_in(address: str, networks: Sequence[Network]) -> bool:
    """Return whether an address is in one of ``networks``; False for text that is not an address."""
    parsed = parse_address(address)
    return parsed is not None and any(parsed in network for network in networks)


def check_bind(host: str, *, authenticated: bool, what: str) -> None:
    """Refuse to open the listener ``what`` beyond this machine without authentication (docs/protocol.md section 4).

    Raises:
        RefusedBind: ``host`` is not a loopback address, and ``authenticated`` is False.
    """
    if not authenticated and not is_loopback(host):
        raise RefusedBind(host, what)


def bind(host: str, port: int, *, reserved: bool = False) -> socket.socket:
    """Return a listening, non-blocking socket; port 0 chooses a free one (see ``getsockname``).

    ``reserved`` listens on a port protected by this user's supervisor (``PortReservations.protect``): the kernel would
    let two listeners share its connections, so only that port's child may do it.

    Blocks on name resolution: call it at the start of a process.

    Raises:
        PortInUse: another process listens on the port.
        AddressUnavailable: the address is not of this machine now, or the name is unknown.
        BindFailed: the port is privileged.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise AddressUnavailable(host, port, error.strerror or "unknown name") from error
    try:
        listener = socket.socket(family, kind, protocol)
    except OSError as error:  # a kernel without IPv6
        raise AddressUnavailable(host, port, error.strerror or str(error)) from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reserved and sys.platform == "linux":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(address)
        # With SO_REUSEADDR two sockets may be bound to one port: only listen() fails for the second.
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise bind_error(host, port, error) from error
    listener.setblocking(False)
    return listener


def bind_all(host: str, port: int, *, reserved: bool = False) -> tuple[socket.socket, ...]:
    """Return the listening sockets of a host as :func:`bind` does; for ``localhost`` one per loopback address.

    Programs resolve that name to either address, ::1 first. Without IPv6 there is one. The errors are those of
    :func:`bind`.
    """
    if host.lower() != "localhost":
        return (bind(host, port, reserved=reserved),)
    first = bind("127.0.0.1", port, reserved=reserved)
    try:
        return first, bind("::1", first.getsockname()[1], reserved=reserved)
    except AddressUnavailable:
        return (first,)
    except DiemError:
        first.close()
        raise


def has_ipv6_loopback() -> bool:
    """Return whether this machine has the address ::1."""
    try:
        bind("::1", 0).close()
    except AddressUnavailable:
        return False
    return True


def bind_error(host: str, port: int, error: OSError) -> DiemError:
    """Return the error of a failed bind."""
    reason = error.strerror or str(error)
    match error.errno:
        case errno.EADDRINUSE:
            return PortInUse(host, port)
        case errno.EADDRNOTAVAIL:
            return AddressUnavailable(host, port, reason)
        case errno.EACCES:
            return BindFailed(
                host, port, f"{reason}: ports below 1024 need CAP_NET_BIND_SERVICE (docs/going-public.md)"
            )
        case _:
            return BindFailed(host, port, reason)


NULL_ORIGIN: Final = "null"
"""Of pages from files, and of every sandboxed frame on the web (RFC 6454, section 7.1)."""


def canonical_origin(text: str) -> str:
    """Return an origin of an operator's list as browsers write it: that of :func:`web_origin`, or ``null``.

    Raises:
        ValueError: as :func:`web_origin`.
    """
    return text if text == NULL_ORIGIN else web_origin(text)


def web_origin(text: str) -> str:
    """Return an origin that names its pages as browsers write it: lower case, without a default port.

    Raises:
        ValueError: not exactly ``http(s)://host[:port]``, or ``null``.
    """
    if text == NULL_ORIGIN:
        raise ValueError("null is the origin of files and of any sandboxed frame: serve the page over http")
    parts = urlsplit(text.strip().lower())
    if parts.scheme not in {"http", "https"} or not parts.hostname or host_of(parts.netloc) is None:
        raise ValueError(f"an origin is http(s)://host[:port], not {text!r}")
    if parts.path or parts.query or parts.fragment or text.rstrip().endswith(("?", "#")):
        raise ValueError(f"an origin has no path: {text!r}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    default = 443 if parts.scheme == "https" else 80
    return f"{parts.scheme}://{host}" + (f":{parts.port}" if parts.port not in {None, default} else "")


def host_name(host: str) -> str:
    """Return the name in a Host header, in lower case and without the port; empty if malformed."""
    return host_of(host.strip().lower()) or ""


def origin_allowed(origin: str | None, *, allowed: frozenset[str], page_port: int | None, loopback_bind: bool) -> bool:
    """Return whether a page of this origin may connect: scheme, host and port must match exactly.

    ``allowed`` has canonical origins. On a loopback bind, this machine's names with the page's port are allowed as
    well. A missing origin is refused here: for such clients, the token or address decides.
    """
    if origin is None:
        return False
    if origin in allowed:
        return True
    if not loopback_bind or page_port is None:
        return False
    port = "" if page_port == 80 else f":{page_port}"
    return origin in {f"http://{host}{port}" for host in ("localhost", "127.0.0.1", "[::1]")}


OTHER_FILES: Final = 256
"""Allowance for open files besides connections: listeners, logs, links to other processes."""


def raise_open_files(wanted: int) -> int:
    """Raise the soft limit of open files to ``wanted`` if allowed; return the resulting limit.

    The usual limit of 1,024 protects programs using ``select``, which our event loops do not.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted if soft == resource.RLIM_INFINITY else soft
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        return allowed
    return soft


def allow_connections(clients: int) -> None:
    """Raise the limit of open files for ``clients``; warn if it is too low for the clients."""
    allowed = raise_open_files(clients + OTHER_FILES)
    if allowed < clients + OTHER_FILES:
        import structlog  # noqa: PLC0415  # a third of the start of processes that need addresses alone

        structlog.get_logger("process").warning(
            "the limit of open files is too low for the clients", open_files=allowed, clients=clients
        )
