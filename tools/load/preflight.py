"""Checks before the first connection: permitted hosts, the limit of open files, and clock differences."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final
from urllib.parse import urlsplit

from diem.errors import ConfigurationError
from diem.process.listeners import is_loopback, raise_open_files

OTHER_FILES: Final = 64
"""Allowance for open files besides the clients' connections."""
DATE_S: Final = 2.0
"""Greatest age of a header ``Date``: it has whole seconds, and servers renew it once a second."""


@dataclass(eq=False)
class UnnamedHost(ConfigurationError):
    """The Data Service names a server on a host not named by the user."""

    template = "{base} names {url}, which is on another host: add --host {host} if you may load it"

    base: str
    url: str
    host: str


@dataclass(eq=False)
class TooFewOpenFiles(ConfigurationError):
    """The limit of open files is too low for the clients."""

    template = (
        "{clients} clients need {needed} open files, and {allowed} are allowed: "
        "raise the limit (`ulimit -n {needed}`), or use fewer --clients"
    )

    clients: int
    needed: int
    allowed: int


def check_hosts(base: str, urls: Iterable[str], named: Collection[str]) -> None:
    """Check that each URL is on this machine, on the host of ``base``, or on one of ``named``. Raises ``UnnamedHost``.

    A server's answer must not determine the loaded hosts.
    """
    allowed = {*named, urlsplit(base).hostname}
    for url in urls:
        host = urlsplit(url).hostname or ""
        if host not in allowed and not is_loopback(host):
            raise UnnamedHost(base, url, host)


def check_open_files(clients: int, connections_of_client: int) -> None:
    """Raise the limit of open files as far as needed and allowed. Raises ``TooFewOpenFiles``."""
    needed = clients * connections_of_client + OTHER_FILES
    allowed = raise_open_files(needed)
    if allowed < needed:
        raise TooFewOpenFiles(clients, needed, allowed)


def clock_difference_s(date: str | None, sent_s: float, received_s: float) -> float:
    """Return the least number of seconds that a service's clock is ahead; negative: behind; 0: perhaps equal.

    Args:
        date: header ``Date`` of its response (RFC 9110 section 6.6.1).
        sent_s: Unix time of the request.
        received_s: Unix time of the response.
    """
    try:
        stated_s = parsedate_to_datetime(date or "").timestamp()
    except ValueError:
        return 0.0
    if stated_s > received_s:
        return stated_s - received_s
    return min(0.0, stated_s + DATE_S - sent_s)
