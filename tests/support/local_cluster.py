"""A local Kafka of one or three brokers as child processes, without the rest of DIEM."""

import asyncio
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from deploy.kafka import brokers, processes
from deploy.kafka.brokers import BrokerPlan
from deploy.kafka.credentials import password_of
from deploy.kafka.program import KafkaProgram, prepare
from deploy.topology.kafka_users import MECHANISM, PROTOCOL, KafkaUser
from deploy.topology.ports import OWN_RANGE
from diem.errors import DiemError
from diem.kafka.client import connected_client
from diem.kafka.config import DEFAULT_PREFIX, KafkaOptions, Names
from diem.kafka.errors import KafkaUnavailable
from diem.process.lifecycle import READY_WITHIN_S, exit_reason
from diem.process.ports import PortReservations, is_accepting

STOPPED_WITHIN_S: Final = 20.0
_POLL_S: Final = 0.05


@dataclass(eq=False)
class BrokerFailed(DiemError):
    """A broker ended, or did not become ready in time."""

    template = "kafka-{node} does not run: {reason} (see {log})"

    node: int
    reason: str
    log: Path


async def all_see_all(plans: Sequence[BrokerPlan], login: KafkaOptions) -> bool:
    """Return whether every broker answers and sees every other: then topics can be created and have leaders.

    ``login`` is used without its address.
    """
    for plan in plans:
        # The port first: the client's log is noisy when nothing listens there.
        if not await is_accepting(plan.port) or await _known_to(plan.port, login) < len(plans):
            return False
    return True


class Nodes(ABC):
    """Processes of brokers, by number; a context in which they run."""

    def __init__(self) -> None:
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._ports = PortReservations()

    @abstractmethod
    async def start(self) -> None:
        """Start every node and wait until they are ready."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop every node; kill those that take too long."""

    def pid(self, node: int) -> int:
        """Return the process id of a started node; raises KeyError for any other."""
        return self._running[node].pid

    def kill(self, node: int) -> int:
        """Kill a node as in a crash; return its former process id."""
        process = self._running.pop(node)
        processes.reap(process)
        return process.pid

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


class LocalCluster(Nodes):
    """Brokers on free loopback ports with their data in ``directory``; existing data is reused.

    Its methods may be called from any event loop, one at a time. The brokers stop when the thread that started them
    ends. Each broker's output is in ``directory``/kafka-N/broker.log. ``with_users``: with the access control and users
    of ``diem up``. ``time_factor`` multiplies the time to become ready.
    """

    def __init__(
        self,
        directory: Path,
        brokers: int = 1,
        *,
        prepare: Callable[[], KafkaProgram] = prepare,
        with_users: bool = False,
        time_factor: float = 1.0,
    ) -> None:
        super().__init__()
        self.directory = directory
        self.brokers = brokers
        self._prepare = prepare
        self._with_users = with_users
        self._ready_within_s = READY_WITHIN_S * time_factor
        self._plans: tuple[BrokerPlan, ...] = ()
        self._argv: dict[int, tuple[str, ...]] = {}

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of all brokers, for clients; empty before the start."""
        return brokers.bootstrap_servers(self._plans)

    @property
    def options(self) -> KafkaOptions:
        """Options of clients with all rights. Raises ``BadKeyFile`` if the operator's password is invalid."""
        if not self._with_users:
            return KafkaOptions(self.bootstrap_servers)
        return KafkaOptions(
            self.bootstrap_servers,
            security_protocol=PROTOCOL,
            sasl_mechanism=MECHANISM,
            sasl_username=KafkaUser.OPERATOR.login,
            sasl_password=password_of(KafkaUser.OPERATOR, self.directory),
        )

    def failed(self) -> BrokerFailed | None:
        """Return the error of a broker that ended by itself, if any."""
        for plan in self._plans:
            process = self._running.get(plan.node)
            if process is not None and process.poll() is not None:
                return BrokerFailed(plan.node, _reason(process, plan), _log(plan))
        return None

    async def start(self) -> None:
        """Start every broker and wait until they are ready.

        Raises:
            NoJava, JarsUnavailable: see ``prepare``.
            UnusableData: see ``deploy.kafka.brokers.write``.
            BrokerFailed, UsersNotCreated: a broker does not start; all are stopped.
        """
        program = await asyncio.to_thread(self._prepare)
        self._ports.release()
        pairs = [(self._ports.choose(OWN_RANGE), self._ports.choose(OWN_RANGE)) for _ in range(self.brokers)]
        self._plans = brokers.plans(self.directory, pairs)
        self._argv = {plan.node: program.argv(plan) for plan in self._plans}
        brokers.write(self._plans, with_users=self._with_users)
        try:
            for plan in self._plans:
                self._launch(plan)
            if self._with_users:
                await self._create_users()
            await self.wait_until_ready()
        except BaseException:
            await self.stop()
            raise

    async def stop(self, within: float = STOPPED_WITHIN_S) -> None:
        """Stop every broker; kill those not done ``within`` seconds.

        All at once: a single one would wait in vain for the others. Even so the last of three waits 5 s for another
        controller to take over; its records are on disk already, so it is killed without waiting.
        """
        deadline = time.monotonic() + within
        for process in self._running.values():
            process.terminate()
        while self._busy() and time.monotonic() < deadline:  # processes end without an event
            await asyncio.sleep(_POLL_S)
        for process in self._running.values():
            processes.reap(process)
        self._running.clear()
        self._ports.release()

    async def restart(self, node: int) -> None:
        """Start a killed broker again, or stop and start a running one, and wait until all are ready."""
        process = self._running.pop(node, None)
        if process is not None:
            await asyncio.to_thread(processes.end, process, STOPPED_WITHIN_S)
        self._launch(self._plans[node - 1])
        await self.wait_until_ready()

    async def _create_users(self) -> None:
        from deploy.kafka.users import create_users  # noqa: PLC0415  # most clusters have none, and it takes 0.2 s

        controllers = [plan.controller_port for plan in self._plans]
        await create_users(self.directory, controllers, Names(DEFAULT_PREFIX), self._ready_within_s)

    def _launch(self, plan: BrokerPlan) -> None:
        self._running[plan.node] = processes.start(self._argv[plan.node], _log(plan), plan.directory)

    def _busy(self) -> bool:
        running = [plan for plan in self._plans if plan.node in self._running]
        return any(self._running[p.node].poll() is None and not p.stopped_file.exists() for p in running)

    async def wait_until_ready(self) -> None:
        """Wait until all running brokers know each other, for at most ``READY_WITHIN_S`` times the factor.

        A broker stopped for longer than its session is fenced, and needs a moment, too.

        Raises:
            BrokerFailed: one has ended, or takes too long.
        """
        deadline = time.monotonic() + self._ready_within_s
        waiting = [plan for plan in self._plans if plan.node in self._running]
        while not await all_see_all(waiting, self.options):
            failed = self.failed()
            if failed is not None:
                raise failed
            if time.monotonic() > deadline:
                raise BrokerFailed(waiting[0].node, "the brokers do not become ready", _log(waiting[0]))
            await asyncio.sleep(_POLL_S)


def _log(plan: BrokerPlan) -> Path:
    return plan.directory / "broker.log"


def _reason(process: "subprocess.Popen[bytes]", plan: BrokerPlan) -> str:
    code = process.returncode
    if code < 0:
        return exit_reason(code)
    cause = processes.full_disk(plan.directory) or _last_line(_log(plan))
    return f"{exit_reason(code)}: {cause}".removesuffix(": ")


async def _known_to(port: int, login: KafkaOptions) -> int:
    """Return the number of brokers known to one broker; 0 if it is not ready."""
    try:
        async with connected_client(replace(login, bootstrap_servers=f"{brokers.HOST}:{port}"), within=5) as client:
            return len(client.cluster.brokers())
    except KafkaUnavailable:
        return 0


def _last_line(log: Path) -> str:
    """Return the last message in a log, without the lines of a traceback; empty if there is none."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    messages = [line for line in lines if line.strip() and not line.startswith(("\t", " "))]
    return messages[-1][:300] if messages else ""
