"""A Kafka of n brokers with three controllers beside them, for ``make bench-sizing``.

In the local cluster of ``diem up`` a node is broker and controller; here, one can be killed without the other. The rest
of the configuration is that cluster's, but for what a benchmark varies.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from deploy.kafka import brokers, processes
from deploy.kafka.brokers import BrokerPlan
from deploy.kafka.program import KafkaProgram, prepare
from deploy.topology.ports import OWN_RANGE
from diem.kafka.client import connected_client
from diem.kafka.config import KafkaOptions
from diem.kafka.errors import KafkaUnavailable
from diem.process.ports import is_accepting
from tests.support.local_cluster import STOPPED_WITHIN_S, BrokerFailed, Nodes
from tests.support.patience import FACTOR

CONTROLLERS: Final = 3
"""The fewest that survive the loss of one."""
HEAP: Final = "-Xmx512m"
"""For thousands of replicas; the last one given counts."""
READY_WITHIN_S: Final = 180.0 * FACTOR
_POLL_S: Final = 0.2
_SETTINGS: Final = {
    # A killed broker is back soon, and a topic of thousands of partitions is gone soon.
    "num.recovery.threads.per.data.dir": "4",
    "log.segment.delete.delay.ms": "1000",
    # Two indexes of each replica are as large as this in the address space.
    "log.index.size.max.bytes": "65536",
    "broker.heartbeat.interval.ms": "500",
    "auto.leader.rebalance.enable": "false",
    # Starved of CPU time by other programs, no controller is to be taken for lost.
    "controller.quorum.election.timeout.ms": "1000",
    "controller.quorum.fetch.timeout.ms": "2000",
}


class SizingCluster(Nodes):
    """Brokers 1 to ``count`` and controllers behind them, with their data in ``directory``."""

    def __init__(self, directory: Path, count: int, settings: Mapping[str, str]) -> None:
        super().__init__()
        self.count = count
        self._directory = directory
        self._settings = {**_SETTINGS, **settings}
        self._plans: dict[int, BrokerPlan] = {}
        self._program: KafkaProgram | None = None

    @property
    def brokers(self) -> range:
        """Numbers of the brokers."""
        return range(1, self.count + 1)

    @property
    def controllers(self) -> range:
        """Numbers of the controllers."""
        return range(self.count + 1, self.count + CONTROLLERS + 1)

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of all brokers."""
        return brokers.bootstrap_servers([self._plans[node] for node in self.brokers])

    def port(self, node: int) -> int:
        """Return the port of a broker."""
        return self._plans[node].port

    async def start(self) -> None:
        """Start all nodes and wait until they are ready. Raises BrokerFailed."""
        self._program = await asyncio.to_thread(prepare)
        nodes = [*self.brokers, *self.controllers]
        pairs = [(self._ports.choose(OWN_RANGE), self._ports.choose(OWN_RANGE)) for _ in nodes]
        plans = brokers.plans(self._directory, pairs)
        self._plans = {plan.node: plan for plan in plans}
        brokers.write(plans)
        for plan in plans:
            plan.properties_file.write_text(self._properties(plan), encoding="utf-8")
        try:
            for node in (*self.controllers, *self.brokers):
                self._launch(node)
            await self.until_ready()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop all nodes, the controllers last; those that do not end in time are killed."""
        for nodes in (self.brokers, self.controllers):
            ending = [self._running.pop(node) for node in nodes if node in self._running]
            for process in ending:
                process.terminate()
            await asyncio.gather(*(asyncio.to_thread(processes.end, each, STOPPED_WITHIN_S) for each in ending))
        self._ports.release()

    async def restart(self, node: int) -> None:
        """Start a killed node again, and wait until all brokers are ready."""
        self._launch(node)
        await self.until_ready()

    async def until_ready(self) -> None:
        """Wait until every broker answers and sees every other. Raises BrokerFailed."""
        deadline = time.monotonic() + READY_WITHIN_S
        while not await self._is_ready():
            for node, process in self._running.items():
                if process.poll() is not None:
                    raise BrokerFailed(node, f"exit {process.returncode}", self._log(node))
            if time.monotonic() > deadline:
                raise BrokerFailed(1, "the brokers do not become ready", self._log(1))
            await asyncio.sleep(_POLL_S)

    def _launch(self, node: int) -> None:
        assert self._program is not None, "not started"
        plan = self._plans[node]
        argv = [*self._program.argv(plan)]
        argv.insert(argv.index("-cp"), HEAP)
        self._running[node] = processes.start(argv, self._log(node), plan.directory)

    def _log(self, node: int) -> Path:
        return self._plans[node].directory / "broker.log"

    def _properties(self, plan: BrokerPlan) -> str:
        brokers_only = [self._plans[node] for node in self.brokers]
        lines = brokers.properties(plan, brokers_only).splitlines()
        found = dict(line.partition("=")[::2] for line in lines)
        return "".join(f"{name}={value}\n" for name, value in self._changed(plan, found).items())

    def _changed(self, plan: BrokerPlan, found: dict[str, str]) -> dict[str, str]:
        ours = [self._plans[node] for node in self.controllers]
        found |= self._settings
        found["controller.quorum.voters"] = ",".join(_voters(ours))
        if plan.node in self.brokers:
            found |= {"process.roles": "broker", "listeners": found["advertised.listeners"]}
        else:
            listener = f"CONTROLLER://{brokers.HOST}:{plan.controller_port}"
            found |= {"process.roles": "controller", "listeners": listener}
            del found["advertised.listeners"]
        return found

    async def _is_ready(self) -> bool:
        for node in self.brokers:
            if node in self._running and not await self._sees_all(self.port(node)):
                return False
        return True

    async def _sees_all(self, port: int) -> bool:
        # The port first: the client's log is loud when nothing listens there.
        if not await is_accepting(port):
            return False
        wanted = sum(1 for node in self.brokers if node in self._running)
        try:
            options = KafkaOptions(bootstrap_servers=f"{brokers.HOST}:{port}")
            async with connected_client(options, within=5) as client:
                return len(client.cluster.brokers()) >= wanted
        except KafkaUnavailable:
            return False


def _voters(plans: Iterable[BrokerPlan]) -> Iterable[str]:
    return (f"{plan.node}@{brokers.HOST}:{plan.controller_port}" for plan in plans)
