"""Converts files in a process of its own: none of them blocks, exhausts or ends this one.

``worker`` is the other side. Requests are pickled, as this side is trusted; answers are frames of JSON and content,
since a file may have taken over the worker.
"""

import asyncio
import contextlib
import os
import pickle
import signal
import sys
from typing import Any, Final, Self

import orjson

from diem.protocol.media_types import SERIES
from services.data.errors import DataError, DatasetTooLarge, InvalidDataset, MalformedBody, MissingPackage, WrongUnit
from services.data.files.frames import CONVERT, DEFAULT_BOUNDS, FRAME, SUGGEST, Bounds
from services.data.files.grid import DEFAULT_LIMITS, FileLimits, InputFile
from services.data.files.mapping import Mapping
from services.data.files.suggestion import Note, Question, Suggestion
from services.data.files.target import FileTarget
from services.data.kinds import Representation
from services.data.kinds.series import Dataset

IDLE_S: Final = 60.0
_MAX_HEAD: Final = 1024 * 1024
_WRITTEN_BYTES: Final = 256 * 1024
"""Written together: the transport copies what the pipe does not take."""
_ERRORS: Final[dict[str, type[DataError]]] = {
    each.__name__: each for each in (DatasetTooLarge, InvalidDataset, MalformedBody, MissingPackage, WrongUnit)
}


class ReaderFailed(DataError):
    """A defect of the reader."""

    code = "reader_failed"


class ReaderEnded(ReaderFailed):
    """Its process was ended from outside."""

    retriable = True


Answer = tuple[list[Representation], dict[str, Any]]
"""Contents, and the head of the last frame."""


class _Broken(Exception):
    """The worker ended, or its answer is none."""


class FileReader:
    """Converts one file at a time; others wait for their turn.

    The process starts with the first file, ends after ``idle_s`` without one, and is replaced when it ends by itself,
    exceeds a bound, or its caller is cancelled.
    """

    def __init__(
        self, limits: FileLimits = DEFAULT_LIMITS, bounds: Bounds = DEFAULT_BOUNDS, *, idle_s: float = IDLE_S
    ) -> None:
        self._limits = limits
        self._bounds = bounds
        self._idle_s = idle_s
        self._turn = asyncio.Lock()
        self._worker: _Worker | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Return the reader."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it."""
        await self.close()

    @property
    def pid(self) -> int | None:
        """The process, if there is one."""
        return None if self._worker is None else self._worker.process.pid

    async def convert(self, file: InputFile, mapping: Mapping, target: FileTarget) -> list[Representation]:
        """Return what :func:`services.data.files.convert.convert` does, and raise what it raises.

        Raises:
            DatasetTooLarge: beyond the bounds of memory or time.
            ReaderFailed: a defect, or the process was ended.
        """
        found, _ = await self._run(file, CONVERT, (mapping, target, self._limits))
        return found

    async def suggest(self, file: InputFile, **options: Any) -> Suggestion:  # noqa: ANN401  # of another function
        """Return what :func:`services.data.files.suggest.suggest` does with ``options``; raise as :meth:`convert`."""
        found, end = await self._run(file, SUGGEST, (options,))
        return _suggestion(end.get("suggestion"), found)

    async def _run(self, file: InputFile, task: str, arguments: tuple[object, ...]) -> Answer:
        head = (file.name, file.media_type, tuple(self._bounds), task, arguments)
        request = await asyncio.to_thread(pickle.dumps, head)
        async with self._turn:
            self._stop_timer()
            try:
                outcome = await self._answer(request, file.body)
            finally:
                if self._worker is not None:
                    self._timer = asyncio.get_running_loop().call_later(self._idle_s, self._retire)
        if isinstance(outcome, DataError):
            raise outcome
        return outcome

    async def _answer(self, request: bytes, body: bytes) -> Answer | DataError:
        if self._worker is None or self._worker.process.returncode is not None:
            self._worker = await _Worker.start()
        worker = self._worker
        try:
            async with asyncio.timeout(self._bounds.wall_s):
                outcome = await worker.exchange(request, body, self._limits)
        except TimeoutError:
            await self._replace()
            return DatasetTooLarge(f"its conversion takes more than {self._bounds.wall_s:g} s: split the file")
        except _Broken as error:
            code = await self._replace()
            return self._explained(code, str(error))
        except BaseException:
            await self._replace()
            raise
        if isinstance(outcome, DatasetTooLarge):  # its memory may be used up
            await self._replace()
        return outcome

    def _explained(self, code: int, reason: str) -> DataError:
        if code == -signal.SIGXCPU:
            return DatasetTooLarge(
                f"its conversion takes more than {self._bounds.cpu_s} s of a processor: split the file"
            )
        if code in {-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS, -signal.SIGKILL}:  # the last by the system
            mebibytes = self._bounds.memory_bytes // (1024 * 1024)
            return DatasetTooLarge(
                f"its conversion needs more than {mebibytes} MiB of memory, or fails: split the file"
            )
        return ReaderEnded(f"the reader ended ({code}): {reason}")

    async def _replace(self) -> int:
        """End the process at once; return its exit code."""
        worker, self._worker = self._worker, None
        return 0 if worker is None else await worker.kill()

    def _retire(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            self._ending = asyncio.create_task(worker.finish())

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def close(self) -> None:
        """End the process; a conversion fails."""
        self._stop_timer()
        await self._replace()
        if self._ending is not None:
            await self._ending


class _Worker:
    """The process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        if process.stdin is None or process.stdout is None:
            raise AssertionError("both are pipes")
        self.process = process
        self._stdin, self._stdout = process.stdin, process.stdout

    @classmethod
    async def start(cls) -> Self:
        """Start a process without this one's settings, in a session of its own: Ctrl-C is for this one."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DIEM_")}
        # Arrow's own pool reserves a gigabyte of address space.
        environment["ARROW_DEFAULT_MEMORY_POOL"] = "system"
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "services.data.files.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
        return cls(process)

    async def exchange(self, request: bytes, body: bytes, limits: FileLimits) -> Answer | DataError:
        """Return the answer to a request. Raises _Broken."""
        with contextlib.suppress(ConnectionError):  # it may have ended; its exit code says why
            self._stdin.write(FRAME.pack(len(request), len(body)))
            for part in (request, body):
                for start in range(0, len(part), _WRITTEN_BYTES):
                    self._stdin.write(part[start : start + _WRITTEN_BYTES])
                    await self._stdin.drain()
        found: list[Representation] = []
        for _ in range(limits.endpoints + 1):
            head, content = await self._frame(limits)
            if "endpoint" not in head:
                return (found, head) if head.get("done") == len(found) else _error(head)
            found.append(_representation(head, content))
        raise _Broken("too many answers")

    async def _frame(self, limits: FileLimits) -> tuple[dict[str, Any], bytes]:
        try:
            head_bytes, content_bytes = FRAME.unpack(await self._stdout.readexactly(FRAME.size))
            if head_bytes > _MAX_HEAD or content_bytes > limits.decoded_bytes:
                raise _Broken("a frame is too long")
            head = orjson.loads(await self._stdout.readexactly(head_bytes))
            return dict(head), await self._stdout.readexactly(content_bytes)
        except (asyncio.IncompleteReadError, ConnectionError):
            raise _Broken("no answer") from None
        except (TypeError, ValueError):
            raise _Broken("a frame is damaged") from None

    async def kill(self) -> int:
        """End the process at once; return its exit code."""
        # One that has ended by itself keeps its exit code.
        with contextlib.suppress(TimeoutError, ProcessLookupError):
            if self._stdout.at_eof():
                await asyncio.wait_for(self.process.wait(), 1)
            self.process.kill()
        self._stdin.close()
        return await self.process.wait()

    async def finish(self) -> None:
        """End the process between requests."""
        self._stdin.close()
        await self.process.wait()


def _representation(head: dict[str, Any], content: bytes) -> Representation:
    try:
        kind = Dataset if head["media_type"] == SERIES else Representation
        return kind(
            str(head["endpoint"]),
            str(head["media_type"]),
            content,
            bytes.fromhex(head["digest"]),
            str(head["title"]),
            str(head["labels"]),
        )
    except (KeyError, TypeError, ValueError):
        raise _Broken("a frame is damaged") from None


def _suggestion(own: Any, found: list[Representation]) -> Suggestion:  # noqa: ANN401  # any JSON value
    try:
        notes = [Note(key, text) for key, text in own["notes"]]
        questions = [Question(key, assumed, reason, tuple(others)) for key, assumed, reason, others in own["questions"]]
        return Suggestion(**own | {"notes": notes, "questions": questions}, found=found)
    except (KeyError, TypeError, ValueError):
        raise ReaderFailed("the reader failed: a suggestion is damaged") from None


def _error(head: dict[str, Any]) -> DataError:
    kind, text, where = (
        _ERRORS.get(str(head.get("error"))),
        str(head.get("text"))[:1000],
        str(head.get("where") or "")[:300],
    )
    if kind is None:
        return ReaderFailed(f"the reader failed: {text}")
    return kind(text, where) if issubclass(kind, InvalidDataset) else kind(text)
