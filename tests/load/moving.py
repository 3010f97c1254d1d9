"""Where the endpoints of a partitioned client are, and how they get from one server to another."""

from abc import abstractmethod
from dataclasses import dataclass
from math import inf
from random import Random
from time import monotonic
from typing import Any

from tests.load.link import Link
from tests.load.post import Post
from tests.load.subscriber import Subscriber, window
from tests.oracle.history import Kind

MAX_HOPS = 3
"""Moves that servers ask for are followed at once this often; then with back-off, and the metadata service is asked."""
STAYED_SECONDS = 1.0
"""What stayed this long has arrived: its hops are forgotten, or a group that changes all the time would add them up."""


@dataclass
class Place:
    """Where one endpoint is for one client."""

    due: float
    """When it is to be located; infinite = not."""
    at: Post | None = None
    """Where it is subscribed, or about to be."""
    settled: bool = False
    """Whether the server there has answered."""
    settled_at: float = inf
    old: Post | None = None
    """Where it is subscribed still, until the other server has answered."""
    hops: int = 0
    asking: bool = False
    """It is being located, and nothing has overtaken that."""


class Moving(Subscriber):
    """A client with a connection for each server that it needs.

    A new server is always joined before the old one is left. It is a ``Posted``. Who knows where endpoints are is
    up to the subclass.
    """

    def __init__(self, name: str, address: str, wants: list[str], random: Random) -> None:
        super().__init__(name, address, wants, random)
        self.places: dict[bytes, Place] = {}
        self.posts: dict[str, Post] = {}
        self.moves = 0
        """How often a server has sent an endpoint elsewhere."""
        self._numbers = 0

    @abstractmethod
    def locate_later(self) -> None:
        """Some endpoints are due to be located."""

    @abstractmethod
    def doubt(self, post: Post) -> None:
        """What is wanted there may be elsewhere."""

    @abstractmethod
    async def asked(self) -> None:
        """Wait until there is an answer, though not for long."""

    def drop(self) -> None:
        for link in self.links:
            link.abort()

    def look(self, now: float) -> None:
        for post in list(self.posts.values()):
            post.look(now)
        self.posts = {url: post for url, post in self.posts.items() if not post.over}

    @property
    def links(self) -> list[Link]:
        return [post.link for post in self.posts.values() if post.link]

    @property
    def connected(self) -> bool:
        return bool(self.places) and all(place.settled for place in self.places.values())

    @property
    def live(self) -> bool:
        needed = {id(place.at): place.at for place in self.places.values()}.values()
        links = [post.link if post else None for post in needed]
        return all(link is not None and link.live and not link.stale & self.wants for link in links)

    # What its posts report

    def answered(self, post: Post, message: dict[str, Any]) -> None:
        """The server answered a subscribe: what was kept elsewhere until now is left there."""
        now = monotonic()
        for name in message["endpoints"]:
            place = self.places.get(name.encode())
            if place and place.at is post and not place.settled:
                place.settled, place.settled_at = True, now
                self._leave_old(name.encode(), place)
        for name, why in message.get("rejected", {}).items():
            if why["code"] == "not_owner":
                self._not_owner(post, name.encode(), why.get("owner"), now)
            else:
                self.unexpected.append(f"{name}: {why}"[:300])

    def moved(self, post: Post, names: list[bytes], owner: str | None) -> None:
        """The server gives these away; it may go on serving them until they are left."""
        now = monotonic()
        for name in names:
            place = self.places.get(name)
            if place is None or place.at is not post:
                continue
            if not place.settled:
                self._not_owner(post, name, owner, now)
                continue
            place.old, place.at, place.settled = post, None, False
            self._hop(name, place, owner, post, now)

    def gone(self, post: Post) -> None:
        """Nothing is registered there any more."""
        for place in self.places.values():
            if place.at is post:
                place.settled = False
            if place.old is post:
                place.old = None

    # What becomes of an endpoint

    def join(self, name: bytes, place: Place, url: str) -> None:
        """Subscribe to an endpoint at a server, and leave where it is now when that one has answered."""
        unsettled = None if place.settled else place.at
        if place.settled:
            place.old = place.at
        post = self._post(url)
        if place.old is post:
            place.old = None
        place.at, place.settled, place.due = post, False, inf
        post.want(name)
        if unsettled and unsettled is not post:
            self._leave(name, unsettled)

    def _post(self, url: str) -> Post:
        post = self.posts.get(url)
        if post is None or post.over:
            post = self.posts[url] = Post(url, self, self, self._number)
        return post

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _not_owner(self, post: Post, name: bytes, owner: str | None, now: float) -> None:
        post.names.discard(name)
        place = self.places.get(name)
        if place and place.old is post:
            place.old = None
        elif place and place.at is post:
            place.at, place.settled = None, False
            self._hop(name, place, owner, post, now)

    def _hop(self, name: bytes, place: Place, owner: str | None, source: Post, now: float) -> None:
        self.moves += 1
        self.delay(place, 1 if now - place.settled_at >= STAYED_SECONDS else place.hops + 1, now)
        if place.hops <= MAX_HOPS and owner is not None and owner != source.url:
            self.join(name, place, owner)
        self.locate_later()

    def delay(self, place: Place, hops: int, now: float) -> None:
        """It is to be located at once, or after its hops with back-off."""
        # An answer that is under way is older than what was just heard.
        place.hops, place.asking = hops, False
        place.due = now + self.random.random() * window(hops - MAX_HOPS - 1) if hops > MAX_HOPS else now

    def _leave_old(self, name: bytes, place: Place) -> None:
        if place.old:
            self._leave(name, place.old)
        place.old = None

    def _leave(self, name: bytes, post: Post) -> None:
        link = post.link
        if post.release(name) and link:
            self.record(Kind.MOVED, name, time=monotonic(), link=link.number)
