"""Pure: whether a server that is current answers for an endpoint; the audience is told when that changes."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from proxy.parties import Audience, Handle, Later
from proxy.places import Followed

PATIENCE: Final = 3.0
"""Seconds without a server's answer after which an endpoint counts as stale; at once when a link is lost."""
LOOK_EVERY: Final = 0.5


class Judge:
    """Judges the endpoints of one follower, those in trouble again and again.

    Args:
        followed: the follower's endpoints.
        audience: hears what has become stale or fresh.
        later: the timer.
        now: monotonic seconds.
        look: called with what is in trouble (not served, or to be asked for again), twice a second, before it is
            judged again.
    """

    def __init__(
        self,
        followed: Mapping[str, Followed],
        audience: Audience,
        later: Later,
        now: Callable[[], float],
        look: Callable[[Iterable[str]], None],
    ) -> None:
        self._followed = followed
        self._audience = audience
        self._later = later
        self._now = now
        self._look = look
        self._troubled: dict[str, None] = {}
        self._timer: Handle | None = None
        self.dead: set[str] = set()
        """Servers that are not current, or not there."""

    def look_at(self, names: Iterable[str], *, at_once: bool = False) -> None:
        """Tell the audience what has become stale or fresh; watch what nobody answers for."""
        stale, fresh = [], []
        now = self._now()
        for name in names:
            followed = self._followed[name]
            if followed.serves(self.dead):
                followed.since = None
                if followed.due is None:
                    self._troubled.pop(name, None)
                else:
                    # Its home has refused it: another server serves it meanwhile.
                    self._troubled[name] = None
                if followed.stale:
                    followed.stale = False
                    fresh.append(name)
                continue
            if followed.since is None:
                followed.since = now
            self._troubled[name] = None
            if not followed.stale and (at_once or now - followed.since >= PATIENCE):
                followed.stale = True
                stale.append(name)
        if self._troubled and self._timer is None:
            self._timer = self._later(LOOK_EVERY, self._again)
        if stale:
            self._audience.stale(stale)
        if fresh:
            self._audience.fresh(fresh)

    def forget(self, name: str) -> None:
        """It is followed no more."""
        self._troubled.pop(name, None)

    def close(self) -> None:
        """Nothing is followed any more."""
        self._troubled.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _again(self) -> None:
        self._timer = None
        self._look(self._troubled)
        self.look_at(list(self._troubled))
