"""Answers questions with what is known now, and shares new clients out among the servers."""

import random
from typing import Any, Protocol

from metadata import locate
from metadata.directory import Directory
from metadata.locate import Question


class Clients(Protocol):
    """How many clients each server has; see :class:`metadata.loads.Loads`."""

    def of(self, public: str) -> int | None:
        """Clients of a server; None when it does not say."""
        ...

    def sent(self, public: str) -> None:
        """A client was sent to a server."""
        ...


class Answers:
    """Makes answers of a directory. ``rng`` decides among equals."""

    def __init__(self, directory: Directory, clients: Clients, rng: random.Random) -> None:
        self._directory = directory
        self._clients = clients
        self._rng = rng

    @property
    def ready(self) -> bool:
        """Whether there are answers."""
        return self._directory.snapshot is not None

    def to(self, question: Question) -> dict[str, Any] | None:
        """The answer; None while there can be none (503)."""
        snapshot, load = self._directory.snapshot, self._clients.of
        if snapshot is None:
            return None
        clone = locate.choose(snapshot, question.clone, load, self._rng)
        urls = locate.servers(snapshot, clone, load, self._rng)
        if clone != question.clone and urls:
            self._clients.sent(urls[0])
        return locate.answer(question, snapshot, clone, urls)
