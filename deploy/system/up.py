"""``diem up``: starts every process of a scaling mode, keeps them running, and stops them in order.

The command line and the composition of the topology are in ``deploy.cli.up``.
"""

import asyncio
import importlib
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, Self

import httpx
import orjson
import structlog

from deploy.admin.collector import Collector, PlanReader
from deploy.admin.listener import OperatorPage
from deploy.clients.metadata import MetadataService
from deploy.kafka.processes import full_disk
from deploy.system import control, scaling, source_health, store
from deploy.system.control import CommandRefused
from deploy.system.description import describe
from deploy.system.launch import Misconfigured, ProcessNotStarted, child_environment
from deploy.system.process_events import ProcessEvents
from deploy.system.process_logs import ProcessLogs
from deploy.system.scaling import Scaler
from deploy.system.scrape_targets import TargetsFile
from deploy.system.state_dir import StateDir
from deploy.terminal import Terminal
from deploy.topology import Durations, Mode, Planned, Readiness, Topology
from deploy.topology.kafka_users import directory_of
from diem.kafka.config import DEFAULT_PREFIX, Names
from diem.links.internal_client import fetch_status, internal_client
from diem.process import security_log
from diem.process.auth import BadKeyFile
from diem.process.clock import SystemClock
from diem.process.fork_server import ForkServer
from diem.process.http_transport import HttpTransport
from diem.process.key_ring import KeyRing
from diem.process.lifecycle import CANCEL_GRACE_S, EXIT_CONFIGURATION, READY_WITHIN_S, Lifecycle, exit_reason
from diem.process.ports import is_accepting
from diem.process.security_log import SecurityEvent
from diem.process.settings import PROCESSES
from diem.process.supervisor import ChildEvent, Spec, Supervisor
from diem.process.tls import BadCertificate, server_context, unverified_context
from diem.process.watchdog import HUNG_AFTER_S

PROBE_TIMEOUT_S: Final = 1.0
METADATA_TIMEOUT_S: Final = 2.0
"""Timeout of requests for plans."""
READY_POLL_S: Final = 0.1
LOG_POLL_S: Final = 0.5
TARGETS_EVERY_S: Final = 2.0
"""Interval of updates of Prometheus' target file."""
MAX_EARLY_DEATHS: Final = 3
"""Deaths of a process before its first readiness that count as a failed start."""
KAFKA_STARTUP_S: Final = 5.0
"""Duration of a broker's first start with its topics, during which all other processes warn of waiting."""
SOURCES_WITHIN_S: Final = 30.0
"""Time for the first attempts of all sources, after which failed ones are shown."""
STARTUP_WARNINGS_S: Final = 5.0
"""Time during which a new process's warnings are start-up noise, such as a missing bridge."""
LATENESS_EVERY_S: Final = 15.0
"""Seconds between two lines about unready processes."""
MAX_NAMED: Final = 3
"""Maximum number of processes named in such a line."""

_logger = structlog.get_logger(__name__)


class HealthProbe:
    """Health of running processes: ours via internal listeners, third-party ones via their ports. Never raises."""

    def __init__(self, key: KeyRing, time_factor: float = 1.0) -> None:
        self._timeout_s = PROBE_TIMEOUT_S * time_factor
        transport = HttpTransport(verify=unverified_context())
        self._client = httpx.AsyncClient(timeout=self._timeout_s, trust_env=False, transport=transport)
        self._internal = internal_client(key, self._timeout_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self._client.aclose()
        await self._internal.aclose()

    async def ready(self, process: Planned) -> bool:
        """Return whether the process is ready, by its ``readiness``."""
        match process.readiness:
            case Readiness.READYZ:
                return await self._answers(f"{process.internal_url}/readyz", 200)
            case Readiness.HTTP:
                return await self._answers(str(process.public_url), None)
            case Readiness.CONNECT:
                return await is_accepting(process.ports.public or 0, self._timeout_s)

    async def report(self, process: Planned) -> dict[str, Any] | None:
        """Return the status document of the process, or None without an answer.

        Without an internal listener, only ``ready``.
        """
        if process.internal_url is None:
            return {"ready": True} if await self.ready(process) else None
        return await fetch_status(self._internal, process.internal_url)

    async def reports(self, processes: Sequence[Planned]) -> list[dict[str, Any] | None]:
        """Return the reports of several processes, in their order, requested concurrently."""
        return list(await asyncio.gather(*map(self.report, processes)))

    async def _answers(self, url: str, status: int | None) -> bool:
        try:
            reply = await self._client.get(url)
        except httpx.HTTPError:
            return False
        return status in {None, reply.status_code}


class Up:
    """One running ``diem up``."""

    def __init__(
        self,
        durations: Durations,
        topology: Topology,
        state: StateDir,
        terminal: Terminal,
        *,
        topic_prefix: str | None = None,
        page: OperatorPage | None = None,
        fork_server: ForkServer | None = None,
    ) -> None:
        self._page = page
        self._durations = durations
        self._topic_prefix = topic_prefix
        self._topology = topology
        self._state = state
        self._terminal = terminal
        self._clock = SystemClock()
        self._started = self._clock.monotonic()
        self._planned = {p.name: p for p in topology.processes}
        self._targets = TargetsFile(state.targets_file)
        self._logs = ProcessLogs(self._planned, state, terminal, self._clock)
        self._events = ProcessEvents(self._clock)
        self._early_deaths = dict.fromkeys(self._planned, 0)
        self._down: set[str] = set()
        self._lateness_due_s = self._started + durations.time_factor * (
            STARTUP_WARNINGS_S + (KAFKA_STARTUP_S if topology.mode.uses_kafka else 0)
        )
        """When it is shown next what is not ready."""
        self._sources_until_s: float | None = None
        """When failing sources are shown at the latest; None before the system is up, and once they were shown."""
        self._fault: ProcessNotStarted | None = None
        self._up = False
        self._hung_after_s = HUNG_AFTER_S * durations.time_factor
        self._supervisor = Supervisor(
            map(self._spec, topology.active(topology.servers)),
            on_event=self._on_event,
            hung_after_s=self._hung_after_s,
            fork_server=fork_server,
        )
        self._scaler = Scaler(
            topology,
            topology.servers,
            self._supervisor,
            self._spec,
            stage_seconds(durations),
            on_applied=self._write_processes,
        )

    async def run(self, life: Lifecycle) -> None:
        """Run until ``life`` is stopping.

        Raises:
            ProcessNotStarted: a process did not become ready; everything is stopped again.
        """
        key = KeyRing.load(self._state.internal_key_file)
        async with HealthProbe(key, self._durations.time_factor) as probe:
            plans = PlanReader(lambda urls: MetadataService(urls, lambda: internal_client(key, METADATA_TIMEOUT_S)))
            collector = Collector(lambda: self._status(probe), plans, self._state.logs, self._clock)

            async def overview(_request: dict[str, Any]) -> dict[str, Any]:
                return dict(orjson.loads(await collector.latest()))

            handlers = {
                "status": lambda _request: self._status(probe),
                "overview": overview,
                "scale": self._scale,
                store.COMMAND: self._store,
            }
            async with control.serve(self._state, handlers):
                self._reload_on_sighup(life)
                self._supervisor.start()
                users = asyncio.create_task(self._create_kafka_users())
                try:
                    await self._until_ready(probe, life, users)
                    await self._supervise(life, probe, collector)
                finally:
                    users.cancel()
                    await asyncio.wait({users})
                    await collector.close()
                    self._terminal.info("stopping")
                    await self._supervisor.stop(stage_seconds(self._durations))
                    self._state.remove_processes()
        self._terminal.info("stopped")

    def _reload_on_sighup(self, life: Lifecycle) -> None:
        if self._topology.public.certificate is None:
            return
        # Closing the terminal sends the same signal, and stops us as without a handler.
        stops = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN and _has_terminal()
        life.on_reload(lambda: life.stop("SIGHUP") if stops and not _has_terminal() else self._reload())

    def _reload(self) -> None:
        """Make the client-facing processes reload the certificate, if usable."""
        public = self._topology.public
        try:
            if public.certificate is not None:
                server_context(public.certificate, public.key)
        except BadCertificate as error:
            self._terminal.warn(f"not replaced: {error}")
            return
        for process in self._topology.processes:
            if process.reloads:
                self._supervisor.signal(process.name, signal.SIGHUP)
        self._terminal.info("the certificate was read again")

    async def _create_kafka_users(self) -> None:
        """Create the users of our own brokers, if any. Raises ``DiemError`` on failure."""
        controllers = [p.ports.internal for p in self._planned.values() if p.process == "kafka" and p.ports.internal]
        if not controllers:
            return
        # Not in the loop: the first import takes 0.2 s. Without Kafka, it may not even be installed.
        users = await asyncio.to_thread(importlib.import_module, "deploy.kafka.users")
        names = Names(DEFAULT_PREFIX if self._topic_prefix is None else self._topic_prefix)
        within_s = READY_WITHIN_S * self._durations.time_factor
        await users.create_users(directory_of(self._state.path), controllers, names, within_s)

    async def _until_ready(self, probe: HealthProbe, life: Lifecycle, users: "asyncio.Task[None]") -> None:
        waiting = list(self._topology.active(self._topology.servers))
        deadline = self._started + READY_WITHIN_S * self._durations.time_factor
        with self._terminal.progress(len(waiting)) as ready:
            while (waiting or not users.done()) and not life.stopping.is_set():
                for process in tuple(waiting):
                    if await probe.ready(process):
                        waiting.remove(process)
                        ready(process.name)
                self._poll_logs()
                if waiting and self._fault is not None:
                    raise self._fault
                if users.done():
                    users.result()
                self._show_missing(waiting)
                if waiting and self._clock.monotonic() > deadline:
                    raise self._not_ready(waiting)
                if waiting or not users.done():
                    await life.pause(READY_POLL_S)
        if not life.stopping.is_set():
            self._up = True
            self._write_processes()
            _warn_if_root()
            seconds = self._clock.monotonic() - self._started
            operator = None if self._page is None else (self._page.url, self._page.key_file)
            self._terminal.announce(self._topology, self._state.path, seconds, operator)
            self._events.add("diem up", f"up after {seconds:.1f} s")
            self._sources_until_s = self._clock.monotonic() + SOURCES_WITHIN_S * self._durations.time_factor

    async def _supervise(self, life: Lifecycle, probe: HealthProbe, collector: Collector) -> None:
        scaling = asyncio.create_task(self._scale_continuously())
        targets = asyncio.create_task(self._write_targets_continuously(probe))
        history = asyncio.create_task(collector.run())
        page = asyncio.create_task(self._serve_page(life, collector))
        try:
            while not life.stopping.is_set():
                self._poll_logs()
                await self._show_recovered(probe)
                await self._show_failing_sources(probe)
                for task in (scaling, targets):
                    if task.done():
                        task.result()
                await life.pause(LOG_POLL_S)
        finally:
            # The supervisor stops processes about to stop with the rest.
            tasks = {scaling, targets, history, page}
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _serve_page(self, life: Lifecycle, collector: Collector) -> None:
        """Serve the operator page; its faults must not stop the system."""
        if self._page is None:
            return
        try:
            await self._page.serve(collector.latest, life.stopping)
        except Exception as error:  # noqa: BLE001 - whatever it is
            self._terminal.warn(f"the operator page has ended: {str(error) or type(error).__name__}")
            self._page.close()

    async def _scale_continuously(self) -> None:
        if self._topology.mode is not Mode.Z_COMPOSITE:
            await self._scaler.run()
            return
        key = KeyRing.load(self._state.internal_key_file)
        await scaling.drive_composite(str(self._planned["composite-1"].internal_url), key, self._scaler)

    def _on_event(self, event: ChildEvent) -> None:
        match event.kind:
            case "died":
                self._on_death(event)
                # Now, not on restart: a child may log before its start event is handled.
                self._logs.reset(event.name)
            case "failed":
                reason = self._reason(event)
                self._events.add(event.name, f"ended, and is not restarted: {reason}")
                if self._up:
                    self._terminal.warn(f"{event.name} is not restarted: {reason}")
                self._fault = self._fault or self._not_started(event.name, reason, Misconfigured)
            case "killed":
                self._events.add(event.name, "did not stop in time and was killed")
                self._terminal.warn(f"{event.name} did not stop in time and was killed")
            case "silent":
                self._events.add(event.name, "does not respond: new clients connect to others")
            case "resumed":
                self._events.add(event.name, "responds again")
            case "hung":
                text = f"hung for {self._hung_after_s:g} s and was killed"
                self._events.add(event.name, text)
                self._terminal.warn(f"{event.name} {text}")
        self._write_processes()

    def _on_death(self, event: ChildEvent) -> None:
        reason = self._reason(event)
        self._events.add(event.name, f"died: {reason}")
        if not self._up:
            self._early_deaths[event.name] += 1
            if self._early_deaths[event.name] >= MAX_EARLY_DEATHS:
                self._fault = self._fault or self._not_started(event.name, reason, ProcessNotStarted)
            return
        when = f"in {event.delay_s:.1f} s" if event.delay_s else "at once"
        self._terminal.warn(f"{event.name} died ({reason}): restarted {when}")
        self._down.add(event.name)

    def _reason(self, event: ChildEvent) -> str:
        code = event.code or 0
        if code <= 0:
            # In order, its last error may be of its start.
            return exit_reason(code)
        is_broker = self._planned[event.name].process == "kafka"
        full = full_disk(directory_of(self._state.path)) if is_broker else ""
        error = full or self._logs.last_error(event.name)
        return error if error and code == EXIT_CONFIGURATION else exit_reason(code) + (f": {error}" if error else "")

    def _not_started(self, name: str, reason: str, kind: type[ProcessNotStarted]) -> ProcessNotStarted:
        return kind(name, reason, self._state.log_of(name))

    def _show_missing(self, waiting: list[Planned]) -> None:
        """Print the unready processes with a reason during a long start: one line every ``LATENESS_EVERY_S``."""
        now = self._clock.monotonic()
        if not waiting or now < self._lateness_due_s:
            return
        self._lateness_due_s = now + LATENESS_EVERY_S * self._durations.time_factor
        names = [process.name for process in waiting]
        listed = ", ".join(names[:MAX_NAMED]) + (f" and {more} more" if (more := len(names) - MAX_NAMED) > 0 else "")
        name, line = self._reason_of_lateness(waiting)
        because = f"; {name}: {line}" if line else ""
        self._terminal.warn(f"not ready after {now - self._started:.0f} s: {listed}{because}")

    def _reason_of_lateness(self, waiting: list[Planned]) -> tuple[str, str]:
        """Return one of the unready processes, with its last log line; empty without any."""
        # Prefer one with a logged reason: others may only be waiting for it.
        named = next((process for process in waiting if self._logs.last(process.name)), waiting[0])
        return named.name, self._logs.last(named.name)

    def _not_ready(self, waiting: list[Planned]) -> ProcessNotStarted:
        name, line = self._reason_of_lateness(waiting)
        return self._not_started(name, "it does not become ready" + (f": {line}" if line else ""), ProcessNotStarted)

    async def _show_recovered(self, probe: HealthProbe) -> None:
        """Print the restarted processes that are ready again, as their deaths were printed, too."""
        for name in tuple(self._down):
            if await probe.ready(self._planned[name]):
                self._down.discard(name)
                self._events.add(name, "ready again")
                self._terminal.info(f"{name} is ready again")

    async def _show_failing_sources(self, probe: HealthProbe) -> None:
        """Print failing sources once all have been tried: their warnings at the start were muted."""
        data = next((process for process in self._topology.processes if process.process == "data"), None)
        if self._sources_until_s is None or data is None or (report := await probe.report(data)) is None:
            return
        sources = report.get("sources", [])
        if all(map(source_health.is_tried, sources)) or self._clock.monotonic() > self._sources_until_s:
            self._sources_until_s = None
            if line := source_health.summary(sources):
                self._terminal.warn(f"{line} (`diem status`)")

    def _poll_logs(self) -> None:
        # During the start, processes warn of waiting for each other: if it takes long, one line gives a reason.
        self._logs.poll(show=self._up)

    def _environment(self, process: Planned) -> dict[str, str]:
        return child_environment(os.environ) | dict(process.env)

    def _spec(self, process: Planned) -> Spec:
        env = self._environment(process)
        log = self._state.log_of(process.name)
        ours = process.process if process.process in PROCESSES else None
        return Spec(process.name, process.argv, env, log, process.stage, process.sweep, process=ours)

    def _describe(self) -> dict[str, Any]:
        return describe(
            self._topology,
            self._supervisor.status(),
            up=self._up,
            uptime_seconds=self._clock.monotonic() - self._started,
            servers=self._scaler.servers,
            operator_url=None if self._page is None else self._page.url,
        )

    def _write_processes(self) -> None:
        with suppress(OSError):  # a full disk must not end the running system
            self._state.write_processes(self._describe())

    async def _write_targets_continuously(self, probe: HealthProbe) -> None:
        while True:
            await self._write_targets(probe)
            await asyncio.sleep(TARGETS_EVERY_S)

    async def _write_targets(self, probe: HealthProbe) -> None:
        description = self._describe()
        # Only a composite knows its children and their addresses.
        composites = [each for each in description["processes"] if each["process"] == "composite"]
        await self._add_reports(composites, probe)
        with suppress(OSError):
            self._targets.update(description)

    async def _status(self, probe: HealthProbe) -> dict[str, Any]:
        description = self._describe()
        await self._add_reports(description["processes"], probe)
        description["events"] = self._events.recent()
        return description

    async def _add_reports(self, processes: Sequence[dict[str, Any]], probe: HealthProbe) -> None:
        """Add each process's report to its entry of a description; None without an answer."""
        reports = await probe.reports([self._planned[process["name"]] for process in processes])
        for process, report in zip(processes, reports, strict=True):
            process["report"] = report if process["pid"] else None

    async def _store(self, _request: dict[str, Any]) -> dict[str, Any]:
        data = next(process for process in self._topology.processes if process.process == "data")
        try:
            return {"database_url": store.configured_url(self._environment(data))}
        except BadKeyFile as error:
            raise CommandRefused(str(error)) from None

    async def _scale(self, request: dict[str, Any]) -> dict[str, Any]:
        if not self._up:
            raise CommandRefused("`diem up` is still starting")
        answer = self._scaler.request(request.get("servers"))
        security_log.audit(SecurityEvent.SCALED, before=answer["before"], servers=answer["servers"])
        self._events.add("diem up", f"scaled from {answer['before']} to {answer['servers']}")
        running = {status.name for status in self._supervisor.status()}
        self._logs.mute(set(answer["processes"]) - running, STARTUP_WARNINGS_S)
        self._write_processes()
        return answer


def _has_terminal() -> bool:
    """Return whether this process has a controlling terminal that is still there."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def stage_seconds(durations: Durations) -> float:
    """Return how long one stage of processes may take to stop before it is killed."""
    return durations.drain_seconds * durations.time_factor + CANCEL_GRACE_S + 1.0


def _warn_if_root() -> None:
    if os.geteuid() == 0:
        _logger.warning("running as root, which nothing here needs: use another user (deploy/systemd/diem.service)")
