"""Progress of one connection to a log, and the errors that end it."""

from dataclasses import dataclass

from diem.errors import DiemError
from services.data.publisher.backlog import Backlog


class LogReplaced(DiemError):
    """A topic is another one than before, has more partitions, or is gone: what it lacks is found out anew."""


class LeaderMoved(DiemError):
    """Requests are under way to a broker that no longer leads, and does not answer."""

    retriable = True


@dataclass(slots=True)
class PublisherState:
    """How far one log is; it outlives the connections to it."""

    source: str
    map: str | None
    """The topic that the map was read from; None if it is to be read before anything is published."""
    backlog: Backlog
    repeat: bool
    """Whether everything is to be sent again, spread over a minute: another process published here before."""
    stranger: bool
    """Whether the store has never published here, so that the log ought to be empty."""
    published: int = 0
    """Records written and acknowledged."""
    foreign: int = 0
    """Partitions that were sent again because of records that are not ours."""
