"""What is still to be written to one partition of a log: what is due, and what is under way."""

from collections.abc import Iterable
from typing import Final

ANY: Final = 1 << 63
"""In place of a sequence, for what is only sent again: it holds nothing back."""


class Lane:
    """One partition: the endpoints that are due, and those that are in the request under way.

    The value of each is the lowest sequence of it that the log may lack. There is at most one request under way, so an
    endpoint is never in two: what changes meanwhile is due after it.
    """

    __slots__ = ("due", "first", "first_flying", "flying", "tombs", "tombs_flying")

    def __init__(self) -> None:
        self.due: dict[bytes, int] = {}
        self.flying: dict[bytes, int] = {}
        self.first: set[bytes] = set()
        """Endpoints that are written here since a short while, and of which nothing has been acknowledged yet."""
        self.first_flying: set[bytes] = set()
        """Those of them that are in the request under way, with what was current when it was made."""
        self.tombs: dict[bytes, None] = {}
        """Endpoints that are not written here any more, whose last record is yet to be overwritten with none."""
        self.tombs_flying: dict[bytes, None] = {}

    @property
    def settled(self) -> bool:
        """Whether the log has what a change of the map asked of this lane."""
        return not (self.first or self.tombs or self.tombs_flying)

    def owe_first(self, endpoint: bytes) -> None:
        """The lane is new for ``endpoint``: until its current update is here, whoever reads it knows nothing."""
        self.tombs.pop(endpoint, None)
        self.first.add(endpoint)
        self.first_flying.discard(endpoint)
        self.owe(endpoint, ANY)

    def bury(self, endpoint: bytes) -> int:
        """``endpoint`` is not written here any more.

        Returns:
            The lowest sequence of it that the log may lack here, or :data:`ANY`: it is owed elsewhere now.
        """
        self.first.discard(endpoint)
        self.first_flying.discard(endpoint)
        self.tombs[endpoint] = None
        return min(self.due.pop(endpoint, ANY), self.flying.get(endpoint, ANY))

    def owe(self, endpoint: bytes, sequence: int) -> None:
        """The log may lack ``endpoint`` from ``sequence`` on."""
        held = self.due.get(endpoint)
        if held is None or sequence < held:
            self.due[endpoint] = sequence

    def owe_if_owed(self, endpoint: bytes, sequence: int) -> None:
        """If the log may lack anything of ``endpoint``, it may lack it from ``sequence`` on."""
        for owed in (self.due, self.flying):
            if endpoint in owed:
                owed[endpoint] = min(owed[endpoint], sequence)

    def take(self, limit: int) -> list[bytes]:
        """The endpoints of the next request, longest due first."""
        taken = list(self.due)[:limit]
        self.flying = {endpoint: self.due.pop(endpoint) for endpoint in taken}
        self.first_flying = {endpoint for endpoint in taken if endpoint in self.first}
        return taken

    def take_tombs(self, limit: int) -> list[bytes]:
        """The tombstones of the next request; for :meth:`Backlog.take_tombs`."""
        taken = list(self.tombs)[:limit]
        self.tombs_flying = {endpoint: self.tombs.pop(endpoint) for endpoint in taken}
        return taken

    def landed(self) -> None:
        """The request under way was acknowledged."""
        # Also of what has changed meanwhile: an endpoint that always has would never be here, and later ones follow.
        self.first -= self.first_flying
        self.flying, self.first_flying, self.tombs_flying = {}, set(), {}

    def failed(self, endpoints: Iterable[bytes] | None = None) -> None:
        """What was under way (or ``endpoints`` of it) is due again; a repetition sends what is current then."""
        for endpoint in list((self.flying | self.tombs_flying) if endpoints is None else endpoints):
            self.first_flying.discard(endpoint)
            if endpoint in self.tombs_flying:
                del self.tombs_flying[endpoint]
                if endpoint not in self.due:
                    self.tombs[endpoint] = None
            elif endpoint in self.tombs:
                # It has left meanwhile, and its current update is due where it is written now.
                del self.flying[endpoint]
            else:
                self.owe(endpoint, self.flying.pop(endpoint))

    def owed_from(self) -> int:
        """The lowest sequence that the log may lack."""
        return min(min(self.due.values(), default=ANY), min(self.flying.values(), default=ANY))
