"""What a connection is to be subscribed to, and the requests that bring its server there. No I/O."""

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from diem.protocol import messages


class Wanted:
    """The set of names that is wanted, and what was asked for on this connection."""

    def __init__(self) -> None:
        self._wanted: dict[str, None] = {}
        self._asked: dict[str, int] = {}
        """Name -> id of the latest request that subscribes to it, on this connection."""
        self._renewed: set[str] = set()
        self._ids = itertools.count(1)

    def want(self, names: Iterable[str]) -> None:
        """Subscribe; to what is subscribed already once more, with the version that is known then."""
        for name in names:
            # Also when the server has not heard yet that it was given up: the version that is known may be another one.
            if name in self._wanted or name in self._asked:
                self._renewed.add(name)
            self._wanted[name] = None

    def release(self, names: Iterable[str]) -> None:
        """Unsubscribe."""
        for name in names:
            self._wanted.pop(name, None)
            self._renewed.discard(name)

    def begin(self) -> None:
        """There is another connection: nothing was asked for on it."""
        self._asked.clear()

    def next(self, known: Callable[[str], int | None]) -> dict[str, Any] | None:
        """What brings the server closer to what is wanted; it counts as sent. Departures free places, and go first."""
        surplus = list(itertools.islice((name for name in self._asked if name not in self._wanted), messages.MAX_NAMES))
        if surplus:
            for name in surplus:
                del self._asked[name]
            return {"type": "unsubscribe", "id": next(self._ids), "endpoints": surplus}
        open_ones = (name for name in self._wanted if name in self._renewed or name not in self._asked)
        missing = list(itertools.islice(open_ones, messages.MAX_NAMES))
        if not missing:
            return None
        number = next(self._ids)
        self._asked.update(dict.fromkeys(missing, number))
        self._renewed.difference_update(missing)
        return {"type": "subscribe", "id": number, "endpoints": {name: known(name) for name in missing}}

    def confirmed(self, request_id: int, registered: Mapping[str, int | None]) -> dict[str, int | None]:
        """Return those of the registered names that count: the request is the latest for them, and they are wanted."""
        return {n: version for n, version in registered.items() if self._is_answer(request_id, n)}

    def refused(self, request_id: int, rejected: Mapping[str, Any]) -> dict[str, Any]:
        """Those of the names that a server has refused that count; they are wanted no more.

        Only the answer to the latest request for a name says anything about it.
        """
        found = {n: why for n, why in rejected.items() if self._is_answer(request_id, n)}
        for name in found:
            del self._asked[name]
        self.release(found)
        return found

    def asked_with(self, request_id: int) -> list[str]:
        """Return the names whose latest request this is: an ``error`` leaves them unregistered."""
        return [name for name, number in self._asked.items() if number == request_id]

    def failed(self, request_id: int) -> None:
        """Ask again for the names of a request that registered nothing.

        They still count as asked for, since a request before that one may have registered them: what is given up
        meanwhile is unsubscribed.
        """
        self._renewed.update(name for name in self.asked_with(request_id) if name in self._wanted)

    def _is_answer(self, request_id: int, name: str) -> bool:
        return self._asked.get(name) == request_id and name in self._wanted
