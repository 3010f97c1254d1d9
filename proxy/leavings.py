"""Pure: ``unsubscribe`` requests of one client that servers are to confirm, so that nothing follows the reply."""

from collections.abc import Callable, Collection, Iterable

from diem.protocol import messages


class _Leaving:
    __slots__ = ("request", "waiting")

    def __init__(self, request: messages.Unsubscribe, waiting: set[tuple[str, int]]) -> None:
        self.request = request
        self.waiting = waiting


class Leavings:
    """The requests that wait. ``reply`` is called once for each, when every server concerned has confirmed or is gone.

    Servers are named by their URLs, their requests by the ids that the follower was given.
    """

    def __init__(self, reply: Callable[[messages.Unsubscribe], None]) -> None:
        self._reply = reply
        self._asked: dict[tuple[str, int], frozenset[str]] = {}
        """What servers were asked to unsubscribe and have not confirmed, for a client or because an endpoint moved."""
        self._waiting: dict[tuple[str, int], list[_Leaving]] = {}

    def __len__(self) -> int:
        """Requests that wait."""
        return len({id(leaving) for leavings in self._waiting.values() for leaving in leavings})

    @property
    def urls(self) -> Collection[str]:
        """Servers that are to confirm something for which a client waits."""
        return {url for url, _ in self._waiting}

    def asked(self, url: str, request_id: int, names: Iterable[str]) -> None:
        """A server was asked to unsubscribe; until it confirms that, updates of these may come from there."""
        self._asked[url, request_id] = frozenset(names)

    def add(self, request: messages.Unsubscribe) -> None:
        """A client leaves, and the servers were asked. Without anything to confirm, the reply follows at once.

        It waits for all that concerns its endpoints: also for what an earlier request has asked for, and for servers
        that the endpoints had left before.
        """
        leaving = _Leaving(
            request, {key for key, names in self._asked.items() if not names.isdisjoint(request.endpoints)}
        )
        for key in leaving.waiting:
            self._waiting.setdefault(key, []).append(leaving)
        self._look_at(leaving)

    def confirmed(self, url: str, request_id: int) -> None:
        """A server has answered."""
        self._done((url, request_id))

    def lost(self, url: str) -> None:
        """Nothing more comes from this server."""
        for key in [key for key in self._asked if key[0] == url]:
            self._done(key)

    def clear(self) -> None:
        """The client is gone: nobody is replied to."""
        self._asked.clear()
        self._waiting.clear()

    def _done(self, key: tuple[str, int]) -> None:
        self._asked.pop(key, None)
        for leaving in self._waiting.pop(key, ()):
            leaving.waiting.discard(key)
            self._look_at(leaving)

    def _look_at(self, leaving: _Leaving) -> None:
        if not leaving.waiting:
            self._reply(leaving.request)
