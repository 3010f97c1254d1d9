"""Who deals with a follower: the links that it uses, whom it follows for, and the timer that it is given."""

from collections.abc import Callable, Mapping
from typing import Protocol


class Handle(Protocol):
    """A timer."""

    def cancel(self) -> None:
        """Do not call."""
        ...


Later = Callable[[float, Callable[[], None]], Handle]
"""``loop.call_later``, or what stands for it in a test."""


class Servers(Protocol):
    """The links of a follower."""

    def ask(self, url: str, known: Mapping[str, int | None]) -> int | None:
        """Ask a server; returns the request's id, from 1. None: there is no open link now, ``opened`` follows."""
        ...

    def drop(self, url: str, names: list[str]) -> None:
        """Tell a server that these are not wanted, if there is an open link.

        A server that nothing is wanted of any more need not be dialled any more.
        """
        ...


class Audience(Protocol):
    """Whom a follower follows for."""

    def known(self, name: str) -> int | None:
        """The version to subscribe with."""
        ...

    def answered(self, versions: Mapping[str, int | None]) -> None:
        """A server has registered these, with the versions that it holds."""
        ...

    def stale(self, names: list[str]) -> None:
        """Nobody who is current answers for these now."""
        ...

    def fresh(self, names: list[str]) -> None:
        """Somebody does again."""
        ...
