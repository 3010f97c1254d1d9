"""Who is sent to another server: subscribers of what this one has not any more (docs/protocol.md sections 3 and 5)."""

from collections.abc import Mapping, Sequence

from diem.fanout.frames import text_frame
from diem.fanout.ownership import Ownership
from diem.fanout.registry import Registry
from diem.fanout.session import Accounts, Session, Visit
from diem.protocol import messages
from diem.protocol.partition_map import Standing


class Departures:
    """Tells sessions of a hub that endpoints are elsewhere, and takes them off what is."""

    def __init__(self, ownership: Ownership, registry: Registry[Session], accounts: Accounts) -> None:
        self._ownership = ownership
        self._registry = registry
        self._accounts = accounts
        self._announced: set[bytes] = set()
        """Endpoints that are moving away, whose subscribers have been told so."""

    def settle(self) -> set[Session]:
        """The map or what this server owns may have changed: subscribers of what it has not any more are sent away.

        Each is told once, and only of what really is elsewhere: after it nothing comes for these endpoints, except
        for one that is just moving, which goes on being delivered.

        Returns:
            Those that were told while an endpoint was moving, and had not left when the move was over: they may not
            have understood, and miss every update from here on.
        """
        ownership, announced = self._ownership, self._announced
        stayed: set[Session] = set()
        leaving: dict[tuple[Session, str | None], list[bytes]] = {}
        lost: dict[Visit, list[bytes]] = {}
        for endpoint in self._registry:
            standing = ownership.standing(endpoint)
            if standing is Standing.SERVES or (standing is Standing.DELIVERS and endpoint in announced):
                continue
            owner = ownership.owner(endpoint)
            for session in tuple(self._registry.subscribers(endpoint)):
                leaving.setdefault((session, owner), []).append(endpoint)
                if standing is Standing.FOREIGN:
                    if endpoint in announced:
                        stayed.add(session)
                    self._take_off(session, endpoint, lost)
            if standing is Standing.DELIVERS:
                announced.add(endpoint)
        self._announced = {e for e in announced if ownership.standing(e) is Standing.DELIVERS}
        for visit, endpoints in lost.items():
            visit.unsubscribed(endpoints)
        self._say_moved(leaving)
        return stayed

    def _take_off(self, session: Session, endpoint: bytes, lost: dict[Visit, list[bytes]]) -> None:
        session.endpoints.pop(endpoint, None)
        self._registry.discard(endpoint, session)
        session.forget(endpoint)
        if session.visit is not None:
            lost.setdefault(session.visit, []).append(endpoint)

    def _say_moved(self, leaving: Mapping[tuple[Session, str | None], Sequence[bytes]]) -> None:
        for (session, owner), endpoints in leaving.items():
            start = 0
            while start < len(endpoints):
                # One by one to a session that is held back, as it may be since the last frame: there, a later frame of
                # the first would replace them all.
                size = 1 if session.blocked else messages.MAX_NAMES
                part = [endpoint.decode() for endpoint in endpoints[start : start + size]]
                start += size
                self._accounts.offered += 1
                session.send(text_frame(messages.moved(part, owner)))
