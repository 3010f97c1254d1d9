"""The public address of a system: its listeners, certificate, and names for clients; pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from diem.errors import ConfigurationError
from diem.process.addresses import HOST
from diem.process.listeners import NULL_ORIGIN, canonical_origin, is_loopback, is_of_this_machine, parse_address
from diem.process.settings import parse_collection

LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")


class BadTopology(ConfigurationError):
    """The options do not fit the mode, or each other."""


@dataclass(frozen=True, slots=True)
class PublicAddress:
    """Address for clients; by default, for local ones only, without TLS. Paths are absolute."""

    listen: str = HOST
    """Address of the public listeners, without a port."""
    certificate: Path | None = None
    key: Path | None = None
    """None: in the certificate's file."""
    origins: tuple[str, ...] = ()
    """Origins of pages that may connect and read: the page's own, unless implied by the names, and others."""
    names: tuple[str, ...] = ()
    """Names and addresses in the certificate."""
    behind_proxy: bool = False
    """True if clients connect through a front proxy, with its own origin."""

    @property
    def connect(self) -> str:
        """Host for local programs, as in a URL."""
        address = parse_address(self.listen)
        if address is None or address.is_unspecified:
            return HOST
        return f"[{address}]" if address.version == 6 else str(address)

    @property
    def other_origins(self) -> tuple[str, ...]:
        """Origins of pages on other local servers of the visitor, such as dev servers."""
        own = self.own_origins
        return tuple(origin for origin in self.origins if origin not in own)

    @property
    def own_origins(self) -> tuple[str, ...]:
        """Origins of this system's page not implied by the names.

        Behind a front proxy, a local origin is the proxy's if there is no other.
        """
        origins = [origin for origin in self.origins if origin != NULL_ORIGIN]
        named = [origin for origin in origins if not is_of_this_machine(urlsplit(origin).hostname or "")]
        return tuple(named or (origins[:1] if self.behind_proxy else ()))

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names in ``Host`` fields of requests to the page, besides this machine's."""
        named = [urlsplit(origin).hostname or "" for origin in self.own_origins] or self.names
        hosts = [f"[{name}]" if ":" in name else name for name in named]
        return tuple(dict.fromkeys(hosts if self.connect == HOST else [*hosts, self.connect]))

    @property
    def page_hosts(self) -> tuple[str, ...]:
        """Names in ``Host`` fields of requests to the page, including this machine's."""
        return (*LOOPBACK_NAMES, *self.hosts)

    def page_origins(self, port: int | None) -> tuple[str, ...]:
        """Return the origins of pages that may connect: the page's on this port, also on this machine, and others."""
        scheme = "https" if self.certificate else "http"
        here = LOOPBACK_NAMES if self.connect == HOST else ()
        named = () if self.own_origins else self.hosts
        own = [f"{scheme}://{host}:{port}" for host in (*named, *here, self.connect)]
        return tuple(dict.fromkeys(map(canonical_origin, (*self.origins, *own))))

    def check(self) -> None:
        """Check that remote clients connect with TLS, here or at a front proxy.

        Raises:
            BadTopology: they would not, or there is a key without a certificate.
        """
        if self.key is not None and self.certificate is None:
            raise BadTopology("--tls-key needs --tls-certificate")
        if self.certificate is None and not self.behind_proxy and not is_loopback(self.listen):
            raise BadTopology(
                f"--listen {self.listen} would send everything unencrypted: add --tls-certificate and --tls-key, "
                "or --front-proxy with the address of what terminates TLS"
            )


def parse_listen(text: str) -> tuple[str, int | None]:
    """Return the address and the port of ``ADDRESS[:PORT]``; an IPv6 address with a port is in brackets.

    Raises:
        BadTopology: another form, or a name other than ``localhost``.
    """
    name, colon, port = text.rpartition(":") if text.count(":") == 1 or "]:" in text else (text, "", "")
    address = parse_address(HOST if name == "localhost" else name)
    valid_port = port.isascii() and port.isdigit() and 0 < int(port[:6]) <= 65535
    if address is None or (colon and not valid_port):
        raise BadTopology(f"--listen is ADDRESS or ADDRESS:PORT (0.0.0.0:443, [::]:443), not {text!r}")
    return str(address), int(port) if colon else None


def parse_origins(texts: Iterable[str]) -> tuple[str, ...]:
    """Return canonical origins, without duplicates. Raises ``BadTopology``."""
    try:
        return tuple(dict.fromkeys(map(canonical_origin, texts)))
    except ValueError as error:
        raise BadTopology(f"--origin: {error}") from None


CLIENT_ORIGINS: Final = tuple(f"DIEM_{each}_ORIGINS" for each in ("WEBSOCKET", "PROXY", "COMPOSITE", "METADATA"))
"""Variables with origins of pages that may connect; one process's apply to all."""


def origins_in(environ: Mapping[str, str], variables: Iterable[str]) -> tuple[str, ...]:
    """Return the canonical origins, and ``*``, in environment variables, without duplicates.

    Raises:
        BadTopology: one of them has something else.
    """
    given = {name.upper(): value for name, value in environ.items() if value}
    found: list[str] = []
    for variable in variables:
        try:
            origins = parse_collection(given.get(variable, "[]"), list[str])
            found += [each if each == "*" else canonical_origin(each) for each in origins]
        except (ValueError, TypeError, AttributeError) as error:
            raise BadTopology(f"{variable}: {error}") from None
    return tuple(dict.fromkeys(found))


def parse_networks(texts: Iterable[str], option: str) -> tuple[str, ...]:
    """Return networks in their usual form, without duplicates.

    Raises:
        BadTopology: a text is not an address or CIDR.
    """
    try:
        return tuple(dict.fromkeys(str(ip_network(text)) for text in texts))
    except ValueError as error:
        raise BadTopology(f"{option}: {error}") from None
