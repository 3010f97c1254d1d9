"""Records what a client of passthrough mode is subscribed to: no hub of this process registers it."""

from collections.abc import Iterable, Mapping

from diem.fanout.session import Session


def joined(session: Session, versions: Mapping[str, int | None]) -> None:
    """The client was answered with these; where nothing is recorded, nothing is kept."""
    if session.visit is not None:
        named = {name.encode(): version for name, version in versions.items()}
        if new := [endpoint for endpoint in named if endpoint not in session.endpoints]:
            session.endpoints.update(dict.fromkeys(new))
            session.visit.subscribed(new, [endpoint for endpoint in new if named[endpoint] is None])


def left(session: Session, names: Iterable[str]) -> None:
    """The client does not want these any more."""
    if session.visit is not None:
        named = dict.fromkeys(name.encode(errors="replace") for name in names)
        if held := [endpoint for endpoint in named if endpoint in session.endpoints]:
            for endpoint in held:
                del session.endpoints[endpoint]
            session.visit.unsubscribed(held)
