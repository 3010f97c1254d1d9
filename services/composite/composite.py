"""Runs the children of one composite, with the requested number of pairs, and aggregates their status."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpx
import structlog

from diem.errors import ConfigurationError
from diem.links.internal_client import fetch_status, internal_client
from diem.process.auth import SharedKey
from diem.process.fork_server import ForkServer
from diem.process.key_ring import KeyRing
from diem.process.supervisor import ChildEvent, Spec, Supervisor
from diem.process.watchdog import HUNG_AFTER_S
from services.composite.plan import Child
from services.composite.settings import OWN

POLL_UNREADY_S: Final = 0.2
"""Seconds between two polls while a child is not ready."""
POLL_READY_S: Final = 1.0
POLL_TIMEOUT_S: Final = 1.0


class StatusPoller:
    """Polls the children; holds each ``/status`` from a successful last poll."""

    def __init__(self, key: KeyRing | SharedKey, time_factor: float = 1.0) -> None:
        self._key = key
        self._timeout_s = POLL_TIMEOUT_S * time_factor
        self._last: dict[str, dict[str, Any]] = {}

    def status(self, name: str) -> dict[str, Any] | None:
        """Return the status of a child; None if it did not answer the last poll."""
        return self._last.get(name)

    def ready(self, name: str) -> bool:
        """Return whether a child is ready."""
        return bool(self._last.get(name, {}).get("ready"))

    def forget(self, name: str) -> None:
        """Drop the status of an ended child."""
        self._last.pop(name, None)

    async def run(self, running: Callable[[], Iterable[Child]]) -> None:
        """Poll the running children concurrently until cancelled."""
        async with internal_client(self._key, self._timeout_s) as http:
            while True:
                children = list(running())
                await asyncio.gather(*(self._poll(http, child) for child in children))
                done = all(self.ready(child.name) for child in children)
                await asyncio.sleep(POLL_READY_S if done else POLL_UNREADY_S)

    async def _poll(self, http: httpx.AsyncClient, child: Child) -> None:
        status = await fetch_status(http, child.internal_url)
        if status is None:
            self.forget(child.name)
        else:
            self._last[child.name] = status


Launch = Callable[[Child], tuple[str, ...]]
"""Return the command line of a child."""


def launch(child: Child) -> tuple[str, ...]:
    """Return the command line to run a child with this interpreter and installation."""
    return (sys.executable, "-m", "diem.process.program", child.process)


@dataclass(eq=False)
class ChildFailed(ConfigurationError):
    """A child rejects its configuration; its log has the reason."""

    template = "{name} cannot be started"

    name: str


class Composite:
    """The children of one composite, and the number of its pairs.

    Args:
        children: plans the children for a number of pairs.
        pairs: pairs at the start.
        poller: holds the status of the children.
        seconds: time for each stage of children to stop when pairs are removed.
        launch: returns the command line of a child.
        hung_after_s: seconds without a heartbeat after which a child is killed.
        fork_server: starts the children; without one, each is a program.
    """

    def __init__(
        self,
        children: Callable[[int], tuple[Child, ...]],
        pairs: int,
        poller: StatusPoller,
        seconds: float,
        launch: Launch = launch,
        *,
        hung_after_s: float = HUNG_AFTER_S,
        fork_server: ForkServer | None = None,
    ) -> None:
        self._children = children
        self._poller = poller
        self._seconds = seconds
        self._launch = launch
        self._changed = asyncio.Event()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._supervisor = Supervisor([], on_event=self._on_event, hung_after_s=hung_after_s, fork_server=fork_server)
        self._initial = frozenset(child.name for child in children(pairs))
        self._known: dict[str, Child] = {}
        self._stopping = False
        self._log = structlog.get_logger("composite")
        self.pairs = pairs
        self.restarts = 0

    def scale(self, pairs: int) -> None:
        """Set the number of pairs; :meth:`run` applies it."""
        if pairs != self.pairs:
            self.pairs = pairs
            self._changed.set()

    async def run(self) -> None:
        """Start the children, and start and stop pairs as requested, until cancelled.

        Raises:
            ChildFailed: a child of the initial plan cannot run with its configuration.
        """
        reporting = asyncio.ensure_future(self._poller.run(self.running))
        scaling = asyncio.ensure_future(self._scale_continuously())
        try:
            await asyncio.wait({reporting, scaling, self._failed}, return_when=asyncio.FIRST_COMPLETED)
            for ended in (self._failed, scaling, reporting):
                if ended.done():
                    ended.result()
        finally:
            reporting.cancel()
            scaling.cancel()
            await asyncio.wait({reporting, scaling})

    def reload(self) -> None:
        """Make the proxy reload its certificate."""
        self._supervisor.signal("proxy", signal.SIGHUP)

    async def stop(self, stage_seconds: float) -> None:
        """Stop every child: the proxy first, then servers, bridges and the metadata service."""
        self._stopping = True
        await self._supervisor.stop(stage_seconds)

    def why_not_ready(self) -> str | None:
        """Return the reason why the composite is not ready, None when it is: it needs the proxy and one pair."""
        if self._stopping:
            return "draining"
        if not self._poller.ready("proxy"):
            return "the proxy is not ready"
        if not self.ready_pairs:
            return "no pair is ready"
        return None

    @property
    def ready_pairs(self) -> int:
        """Number of pairs with a ready server."""
        names = [status.name for status in self._supervisor.status() if status.pid]
        return sum(self._poller.ready(name) for name in names if name.startswith("websocket-"))

    def running(self) -> list[Child]:
        """Return the running children."""
        return [self._known[status.name] for status in self._supervisor.status() if status.pid]

    def status(self) -> dict[str, Any]:
        """Return the part of ``/status`` about the children; clients are the proxy's."""
        proxy = self._poller.status("proxy") or {}
        own = {"ready": self.why_not_ready() is None, "pairs": self.pairs, "ready_pairs": self.ready_pairs}
        edge = {
            name: proxy[name]
            for name in ("clients", "clients_by_access", "subscriptions", "upstreams")
            if name in proxy
        }
        servers = [report for child in self.running() if (report := self._server_status(child))]
        if servers:
            own["live"] = all(report.get("live") for report in servers)
        return own | edge | {"children": list(self._describe_children())}

    def _server_status(self, child: Child) -> Mapping[str, Any] | None:
        return self._poller.status(child.name) if child.process == "websocket" else None

    def _describe_children(self) -> Iterable[Mapping[str, Any]]:
        now = {status.name: status for status in self._supervisor.status()}
        for child in self._known.values():
            if (status := now.get(child.name)) is None:
                continue
            yield {
                "name": child.name,
                "process": child.process,
                "state": str(status.state),
                "pid": status.pid,
                "uptime_seconds": round(status.uptime_seconds, 1),
                "restarts": status.restarts,
                "last_exit": status.last_exit,
                "last_exit_seconds": _rounded(status.last_exit_seconds),
                "urls": {"internal": child.internal_url},
                "report": self._poller.status(child.name) if status.pid else None,
            }

    async def _scale_continuously(self) -> None:
        while True:
            self._changed.clear()
            children = self._children(self.pairs)
            planned = {child.name: child for child in children}
            # In the order of the plan, followed by those about to stop.
            self._known = planned | {name: child for name, child in self._known.items() if name not in planned}
            await self._supervisor.become([self._spec(child) for child in children], self._seconds)
            await self._changed.wait()

    def _spec(self, child: Child) -> Spec:
        # A variable without the name of a process is the composite's own here, such as its port.
        env = {name: value for name, value in os.environ.items() if name.upper() not in OWN} | dict(child.env)
        return Spec(child.name, self._launch(child), env, stage=child.stage, inherit=True, process=child.process)

    def _on_event(self, event: ChildEvent) -> None:
        if event.kind != "started":
            self._poller.forget(event.name)
        match event.kind:
            case "died":
                self.restarts += 1
                self._log.warning("child died", child=event.name, code=event.code, delay_seconds=event.delay_s)
            case "failed":
                self._log.error("child is not restarted: its configuration is wrong", child=event.name)
                # For a child added later, or run before, only log it: the others keep running.
                if event.name in self._initial and not self._restarted(event.name) and not self._failed.done():
                    self._failed.set_exception(ChildFailed(event.name))
            case "killed":
                self._log.warning("child did not stop in time and was killed", child=event.name)
            case "hung":
                self._log.warning("child hung and was killed", child=event.name)
            case _:
                self._log.info(f"child {event.kind}", child=event.name, pid=event.pid)

    def _restarted(self, name: str) -> bool:
        return any(status.restarts for status in self._supervisor.status() if status.name == name)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)
