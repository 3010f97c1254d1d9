"""Life cycle of a process: signals, drain, exit codes, and the lag of its event loop."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, TypeVar

import structlog

from diem.errors import ConfigurationError, DiemError
from diem.process import log, metrics
from diem.process.backoff import wait
from diem.process.clock import until_next
from diem.process.service_links import service_links
from diem.process.settings import SHARED_PREFIX, ProcessSettings
from diem.process.tracing import Tracer, tracing
from diem.process.watchdog import heartbeats, standard_input

PERIOD_S: Final = 1.0
"""Between two measurements of the lag: each wakes an idle process."""


class LoopLag:
    """Greatest delay of a periodic timer, in seconds; delays shorter than the period may fall between."""

    __slots__ = ("_due", "_handle", "_loop", "_period_s", "_worst")

    def __init__(self, loop: asyncio.AbstractEventLoop, period_s: float) -> None:
        self._loop = loop
        self._period_s = period_s
        self._worst = 0.0
        self._schedule()

    def pop(self) -> float:
        """Return the greatest delay since the last call."""
        worst, self._worst = self._worst, 0.0
        return max(worst, self._loop.time() - self._due)

    def close(self) -> None:
        """Stop measuring."""
        self._handle.cancel()

    def _schedule(self) -> None:
        now = self._loop.time()
        self._due = now + until_next(now, self._period_s)
        self._handle = self._loop.call_at(self._due, self._fire)

    def _fire(self) -> None:
        self._worst = max(self._worst, self._loop.time() - self._due)
        self._schedule()


@contextlib.contextmanager
def measuring_lag() -> Iterator[LoopLag]:
    """Measure the lag of the running loop, and expose it as ``diem_loop_lag_seconds``."""
    lag = LoopLag(asyncio.get_running_loop(), PERIOD_S)
    unregister = metrics.register(lambda: [metrics.LOOP_LAG_SECONDS.sample(lag.pop())])
    try:
        yield lag
    finally:
        unregister()
        lag.close()


EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_CONFIGURATION: Final = 2
EXIT_UNEXPECTED: Final = 70
READY_WITHIN_S: Final = 60.0
"""Time for processes started together to become ready, before the time factor."""
ORPHAN_DRAIN_S: Final = 1.0
"""Drain time of a process whose supervisor died: nobody would start its successor."""
CANCEL_GRACE_S: Final = 2.0
"""Time for ``main`` to clean up when cancelled after the drain deadline."""

_S = TypeVar("_S", bound=ProcessSettings)
_logger = structlog.get_logger(__name__)


def exit_reason(code: int) -> str:
    """Return an exit code in readable form: ``killed by SIGKILL``, ``exit 1``."""
    if code >= 0:
        return f"exit {code}"
    # Real-time signals have numbers but no names of their own.
    known = {number.value for number in signal.Signals}
    return f"killed by {signal.Signals(-code).name if -code in known else f'signal {-code}'}"


class Lifecycle:
    """Life cycle as seen by a process's ``main``: wait for ``stopping``, then drain within ``drain_seconds``."""

    def __init__(self, drain_seconds: float) -> None:
        self.stopping = asyncio.Event()
        self.drain_seconds = drain_seconds
        self.reason = ""
        self.tracer: Tracer | None = None
        """Of this process, while its ``main`` runs; None: nothing is traced."""
        self._reloads: list[Callable[[], None]] = []

    def on_reload(self, reload: Callable[[], None]) -> None:
        """Call ``reload`` on the event loop at every SIGHUP; without such calls, the signal ends the process."""
        self._reloads.append(reload)
        if len(self._reloads) == 1:
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._reload)

    def _reload(self) -> None:
        for reload in self._reloads:
            reload()

    def stop(self, reason: str, *, drain_seconds: float | None = None) -> None:
        """Request a stop; only the first call counts.

        ``drain_seconds`` may shorten the drain time, never lengthen it.
        """
        if self.stopping.is_set():
            return
        if drain_seconds is not None:
            self.drain_seconds = min(self.drain_seconds, drain_seconds)
        self.reason = reason
        self.stopping.set()

    async def pause(self, seconds: float) -> None:
        """Wait until ``stopping`` is set, at most ``seconds``."""
        await wait(self.stopping, seconds)


def run(settings: _S, main: Callable[[_S, Lifecycle], Awaitable[None]]) -> int:
    """Run ``main(settings, life)`` until it ends, and return the exit code of the process.

    The code is 0 after a requested stop, 1 for a ``DiemError`` and 2 for a ``ConfigurationError`` (both one line on
    standard error), 70 for any other error (logged with its traceback). A second signal ends the process at once.
    ``main`` is cancelled ``drain_seconds`` after the request to stop. Files it creates are accessible to the owner
    only.
    """
    log.configure(settings.log_level, settings.log_format, settings.process_name)
    if links := service_links(os.environ, SHARED_PREFIX):
        _logger.debug("service links of Kubernetes are ignored", variables=links)
    life = Lifecycle(settings.drain_seconds * settings.time_factor)

    async def traced() -> None:
        with tracing(settings) as life.tracer:
            await main(settings, life)

    with private_files():
        return serve(life, traced, supervised=settings.supervised)


@contextlib.contextmanager
def private_files() -> Iterator[None]:
    """Make files created by this process and its children in the block owner-only."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def serve(life: Lifecycle, main: Callable[[], Awaitable[None]], *, supervised: bool = False) -> int:
    """Run ``main()`` under ``life`` as :func:`run` does, without configuring logs."""
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_live(life, main, supervised))
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  # the end of the line for every error
        return report(error)
    return EXIT_OK


def report(error: BaseException) -> int:
    """Report an error on standard error or in the log, and return its exit code (see :func:`run`)."""
    leaves = list(_leaves(error))
    if not all(isinstance(leaf, DiemError) for leaf in leaves):
        _logger.critical("process failed", exc_info=error)
        return EXIT_UNEXPECTED
    for text in dict.fromkeys(str(leaf) for leaf in leaves):
        log.fail(text)
    configured = any(isinstance(leaf, ConfigurationError) for leaf in leaves)
    return EXIT_CONFIGURATION if configured else EXIT_FAILED


async def _live(life: Lifecycle, main: Callable[[], Awaitable[None]], supervised: bool) -> None:
    with _signals(life), _supervisor(life, supervised), heartbeats(supervised=supervised), measuring_lag():
        work = asyncio.ensure_future(main())
        stop = asyncio.ensure_future(life.stopping.wait())
        try:
            await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                _logger.info("stopping", reason=life.reason, drain_seconds=life.drain_seconds)
                await _drain(work, life.drain_seconds)
        finally:
            stop.cancel()
        if not work.cancelled():
            work.result()


async def _drain(work: asyncio.Future[None], seconds: float) -> None:
    await asyncio.wait({work}, timeout=seconds)
    if work.done():
        return
    _logger.warning("drain deadline passed", seconds=seconds)
    work.cancel()
    await asyncio.wait({work}, timeout=CANCEL_GRACE_S)
    if not work.done():
        _logger.error("process does not end although it was cancelled")
        _exit_now(EXIT_FAILED)


@contextlib.contextmanager
def _signals(life: Lifecycle) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    owned = (signal.SIGTERM, signal.SIGINT)

    def receive(number: signal.Signals) -> None:
        if life.stopping.is_set():
            _logger.warning("second signal: ending at once", signal=number.name)
            _exit_now(128 + number)
        life.stop(number.name)

    for number in owned:
        loop.add_signal_handler(number, receive, number)
    try:
        yield
    finally:
        for number in (*owned, signal.SIGHUP):
            loop.remove_signal_handler(number)


@contextlib.contextmanager
def _supervisor(life: Lifecycle, supervised: bool) -> Iterator[None]:
    """Stop at the end of standard input, which the supervisor keeps open while it lives."""
    if not supervised:
        yield
        return
    loop = asyncio.get_running_loop()
    stdin = standard_input()
    os.set_blocking(stdin, False)

    def readable() -> None:
        try:
            data = os.read(stdin, 4096)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data = b""  # the end, of a supervisor that had not read all heartbeats
        if not data:
            loop.remove_reader(stdin)
            life.stop("the supervisor is gone", drain_seconds=ORPHAN_DRAIN_S)

    loop.add_reader(stdin, readable)
    try:
        yield
    finally:
        loop.remove_reader(stdin)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415  # not every platform has it
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _exit_now(code: int) -> None:
    # Not sys.exit: this runs inside the loop, which would first run its other callbacks.
    log.flush()
    os._exit(code)
