"""One watcher: its connection, its question, and what it is told (docs/protocol.md section 4)."""

import asyncio
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import orjson
from websockets.frames import Frame
from websockets.http11 import Request

from diem.links.acceptor import Reply, ServerConnection
from diem.process.limits import ErrorWindow, MessageAllowance
from diem.protocol import messages
from diem.protocol.codes import Close, ErrorCode
from metadata import locate
from metadata.locate import InvalidRequest, Question

if TYPE_CHECKING:
    from metadata.watching import Watching

PATH: Final = "/v1/watch"
SLOW_AFTER: Final = 10.0
"""Seconds in which a watcher takes nothing of what waits for it, after which it is closed with 4002."""


class Watcher(ServerConnection):
    """One watcher. It holds its question, and a mark of the last answer; what it has not taken is made anew."""

    __slots__ = (
        "_address",
        "_allowance",
        "_errors",
        "_held",
        "_pending",
        "_question",
        "_said",
        "_shared",
        "_slot",
        "_stall",
    )

    def __init__(self, shared: "Watching") -> None:
        super().__init__(subprotocols=(), max_size=locate.MAX_QUESTION)
        self._shared = shared
        self._question: Question | None = None
        self._held = 0
        self._said = b""
        self._address: str | None = None
        self._allowance: MessageAllowance
        """Lent to who was let in, until it is gone."""
        self._errors = ErrorWindow()
        self._slot = -1
        self._stall: asyncio.TimerHandle | None = None
        self._pending = 0

    def on_request(self, request: Request) -> None:
        """Let a watcher in, or refuse it (400, 403, 404, 429, 503)."""
        shared = self._shared
        if request.path.partition("?")[0] != PATH:
            self._refuse(Reply(404, b"watches are at /v1/watch\n"))
            return
        if shared.draining or not shared.answers.ready:
            self._refuse(Reply(503, b"not ready\n", headers={"Retry-After": "1"}))
            return
        address, outcome = shared.gate.enter(self.peer, request.headers, self._now())
        if isinstance(outcome, Reply):
            self._refuse(outcome)
            return
        self._address, self._allowance = address, outcome
        if not self.upgrade(request):
            shared.refused[400] += 1
            return
        self._slot = shared.wheel.add(self)
        shared.watches.add(self)

    def on_text(self, data: bytes) -> None:
        """A question: it takes the place of the last one, and is answered."""
        if not self.is_open:
            return
        messages_left, now = self._allowance.messages, self._now()
        if not messages_left.take(now):
            self.close(Close.RATE, f"retry={int(messages_left.retry_after(now) * 1000) + 1000}")
            return
        try:
            data.decode()
            question = locate.read(data, self._shared.most)
        except UnicodeDecodeError:
            self.fail(Close.INVALID_DATA, "text must be UTF-8")
            return
        except InvalidRequest as error:
            self._error(error.code, str(error))
            return
        self._allowance.charge_names(now, question.given)
        more = question.held - self._held
        if more > self._shared.free:
            self._error(ErrorCode.LIMIT, "too much is watched here: ask another instance, or with /v1/locate")
            return
        self._shared.free -= more
        self._held += more
        self._question, self._said = question, b""
        self.tell()

    def tell(self) -> None:
        """Send the answer, unless it is the one that was sent last. A slow watcher gets what holds when it has time."""
        if self._question is None or self._stall is not None or not self.is_open:
            return
        answer = self._shared.answers.to(self._question)
        if answer is None:
            return
        # The clone is chosen once.
        self._question = self._question._replace(clone=answer["clone"])
        mark = _mark(answer)
        if mark != self._said:
            self._said = mark
            self.send_text(orjson.dumps(answer))

    def turn(self, *, due: bool) -> None:
        """The wheel has come: every 25 s a ping, 10 s later a look at the answer."""
        if self._stall is not None:
            return
        if due:
            self.alive = False
            self.ping()
        elif not self.alive:
            self.close(Close.INTERNAL_ERROR, "no pong")

    def on_closing(self) -> None:
        """Take it off the list: nothing follows a close frame."""
        shared = self._shared
        if self in shared.watches:
            shared.watches.discard(self)
            shared.wheel.discard(self, self._slot)
            shared.free += self._held
            self._question = None
            if not self.transport.is_closing():
                # Its answer to the close frame is to be read.
                self.transport.resume_reading()
        self._no_stall()

    def on_closed(self) -> None:
        """Give the place free."""
        if self._address is not None:
            self._shared.gate.leave(self._address, self._allowance, self._now())
            self._address = None

    # Flow control

    def pause_writing(self) -> None:
        """The watcher is slow: it is told nothing and asked nothing until it has taken what waits."""
        if self in self._shared.watches:
            self.transport.pause_reading()
            self._pending = self.transport.get_write_buffer_size()
            self._stall = asyncio.get_running_loop().call_later(SLOW_AFTER, self._look_at_stall)

    def resume_writing(self) -> None:
        """The watcher has taken what waited."""
        if self._stall is not None:
            self._no_stall()
            self.alive = True
            self.transport.resume_reading()
            self.tell()

    def _look_at_stall(self) -> None:
        loop, waiting = asyncio.get_running_loop(), self.transport.get_write_buffer_size()
        if waiting < self._pending:
            self._pending = waiting
            self._stall = loop.call_later(SLOW_AFTER, self._look_at_stall)
            return
        self.close(Close.SLOW, "retry=1000")
        # The close frame waits behind what is not read.
        loop.call_later(1.0, self.abort)

    def _no_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    # Refusals

    def _on_frame(self, frame: Frame) -> None:
        # Of any kind: each costs the library as much as a message.
        if self._allowance.take_frame(self._now()):
            super()._on_frame(frame)
        elif self.is_open:
            self.close(Close.RATE, "retry=1000")

    def _refuse(self, reply: Reply) -> None:
        self._shared.refused[reply.status] += 1
        self.reply(reply)

    def _error(self, code: ErrorCode, reason: str) -> None:
        self.send_text(messages.error(code, reason))
        if self._errors.add(self._now()):
            self.close(Close.TOO_MANY_ERRORS, "too many errors")

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def _mark(answer: dict[str, Any]) -> bytes:
    """What makes an answer another one: the order of the servers, which changes with every client, does not."""
    return blake2b(orjson.dumps({**answer, "servers": sorted(answer["servers"])}), digest_size=16).digest()
