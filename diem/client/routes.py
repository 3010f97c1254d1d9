"""Routing of an endpoint to its server in a group, by servers' answers (docs/protocol.md section 3.2).

Pure: subscribing and unsubscribing are functions of the caller.
"""

import math
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from diem.client.backoff import Timing
from diem.process.backoff import full_jitter
from diem.process.listeners import is_loopback

MAX_HOPS: Final = 3
"""Maximum number of hints followed per attempt: servers naming each other would otherwise loop forever."""

At = Callable[[str, str], None]
"""Called with the URL of a server and an endpoint."""


def trusted_url(url: object, base: str, hosts: frozenset[str]) -> str | None:
    """Return the URL to dial for a server announced by another one; None if not trusted.

    A loopback address is the server's own view of itself: it is replaced by the host of ``base``, the URL of the
    announcing server. Any other host must be one of ``hosts``. The SDK has the same rule
    (``client/src/sdk/locator.ts``); ``tests/cases/owner_urls.json`` has the cases that both pass.
    """
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return None
    if parts.scheme not in {"ws", "wss"} or parts.username is not None or not parts.hostname:
        return None
    if is_loopback(parts.hostname):
        namer = urlsplit(base)
        host = f"[{namer.hostname}]" if ":" in (namer.hostname or "") else namer.hostname
        return f"{'wss' if namer.scheme in {'https', 'wss'} else 'ws'}://{host}{port}{parts.path}"
    return parts.geturl() if parts.hostname in hosts else None


class Route:
    """The servers of one endpoint's subscription, and the time of the next attempt elsewhere.

    An attempt is a subscribe: a server without the endpoint names its owner. A wrong hint costs a hop, never an update:
    a new server is joined before the old one is left. ``now`` is seconds of a monotonic clock.
    """

    __slots__ = (
        "_attempts",
        "_endpoint",
        "_hops",
        "_limits",
        "_old_serves",
        "_registered_at",
        "_subscribe_at",
        "_timing",
        "_unsubscribe_at",
        "due",
        "is_registered",
        "old",
        "tried",
        "url",
    )

    def __init__(self, endpoint: str, timing: Timing, subscribe_at: At, unsubscribe_at: At, now: float) -> None:
        self._endpoint = endpoint
        self._timing = timing
        self._subscribe_at = subscribe_at
        self._unsubscribe_at = unsubscribe_at
        self.due = now
        """When to ask another server; infinity: not at all."""
        self.url: str | None = None
        """The server where it is subscribed, or about to be; None until one is known."""
        self.is_registered = False
        """Whether that server has answered."""
        self.old: str | None = None
        """The server where it stays subscribed until ``url`` has answered."""
        self._old_serves = False
        """Whether ``old`` was left by the client's own choice, and so still serves the endpoint."""
        self.tried: str | None = None
        """The server that was tried last."""
        self._attempts = 0
        """Questions since it last stayed at a server."""
        self._hops = 0
        """Redirects since the last question."""
        self._limits = 0
        """Refusals for want of room since a server last had it."""
        self._registered_at = math.inf

    @property
    def is_lost(self) -> bool:
        """True after so many failed attempts that any server may be the owner."""
        return self._attempts > MAX_HOPS

    def ask(self, url: str) -> None:
        """Try a server, which may not have the endpoint."""
        self._attempts += 1
        self._hops = 0
        self._join(url)

    def leave(self) -> None:
        """Leave every server."""
        self._leave(self.url)
        self._leave_old()

    def registered(self, url: str, now: float) -> None:
        """Handle a server's confirmation: leave the server kept until now."""
        if url == self.url and not self.is_registered:
            self.is_registered, self._registered_at, self._limits = True, now, 0
            self._leave_old()

    def moved(self, url: str, owner: str | None, now: float) -> None:
        """Handle ``moved``: the server gives the endpoint away, and may serve it until left."""
        if url == self.old:
            self._old_serves = False
        elif url == self.url and self.is_registered:
            self.old, self._old_serves = url, False
            self._follow(owner, now)
        else:
            self.not_owner(url, owner, now)

    def not_owner(self, url: str, owner: str | None, now: float) -> None:
        """Handle ``not_owner``: a server refused the endpoint."""
        if url == self.old:
            self._leave_old()
        elif url == self.url:
            self._leave(url)
            self._follow(owner, now)

    def over_limit(self, url: str, now: float) -> bool:
        """Handle a full server: the endpoint stays where it is served. Return whether further attempts are hopeless."""
        if url == self.url:
            self._leave(url)
            self.url = self.old if self._old_serves else None
            self.is_registered = self.url is not None
            if self.is_registered:
                self.old = None
            self._limits += 1
            self._attempts = max(self._attempts, 2)
            self.retry(now)
        return self._limits > MAX_HOPS

    def lost(self, url: str, now: float) -> None:
        """Handle a closed connection, with its registrations."""
        if url == self.old:
            self._leave_old()
        if url == self.url:
            self._settle(now)
            self.is_registered = False

    def retry(self, now: float, *, was_absent: bool = False) -> None:
        """Try another server: at once, or with back-off from the second attempt on.

        ``was_absent``: the server was not reached, and never answered before, so the attempt does not count.
        """
        self._attempts -= was_absent
        attempt = self._attempts - 2
        backs_off = attempt >= 0 and not was_absent
        delay_s = full_jitter(attempt, self._timing.base_s, self._timing.cap_s) if backs_off else 0.0
        self.due = min(self.due, now + delay_s)

    def _join(self, url: str) -> None:
        if self.is_registered:
            self.old, self._old_serves = self.url, True
        elif self.url != url:
            self._leave(self.url)
        if self.old == url:
            self.old = None
        self.url = self.tried = url
        self.is_registered, self.due = False, math.inf
        self._subscribe_at(url, self._endpoint)

    def _follow(self, owner: str | None, now: float) -> None:
        origin, self.url, self.is_registered = self.url, None, False
        self._settle(now)
        self._hops += 1
        if owner is None or owner == origin or self._hops > MAX_HOPS:
            self.retry(now)
        else:
            self._join(owner)

    def _settle(self, now: float) -> None:
        """Reset the count of attempts after a stay, once per stay, or later refusals would be followed endlessly."""
        if now - self._registered_at >= self._timing.stayed_after_s:
            self._hops = self._attempts = 0
        self._registered_at = math.inf

    def _leave_old(self) -> None:
        url, self.old = self.old, None
        self._leave(url)

    def _leave(self, url: str | None) -> None:
        if url is not None:
            self._unsubscribe_at(url, self._endpoint)
