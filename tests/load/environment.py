"""The environment of a run: the system with its relays, the writer, the client process."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

from tests.load import mix
from tests.load.bench import Goal
from tests.load.brokers import Brokers
from tests.load.client_process import ClientProcess
from tests.load.clients import Plan
from tests.load.injection import ATTACK, CUTS, UPSTREAM_CUTS, Scene, attack, groups, traffic_plan
from tests.load.injection.repartition import quiet_of, settings_of, variables_of
from tests.load.mixed_writer import MixedWriter
from tests.load.outsiders import watching
from tests.load.plans import apply_file
from tests.load.relay import Relay
from tests.load.scenario import Scenario
from tests.load.system import NotUp, System
from tests.load.topic_writer import TopicWriter
from tests.load.trace import Trace, read_trace
from tests.load.trees import Trees
from tests.load.writes import Writer

EDGES = ("WEBSOCKET", "PROXY", "COMPOSITE", "METADATA")
PER_ADDRESS = 40
"""Most clients of an address, below the limit of edges."""
CONNECTS_PER_S, TOKENS_PER_S = 300, 100
"""Rate of first connections, without and with a token that each client requests for it."""
RETAINING = ("DATA", "BROADCAST", "WEBSOCKET", "PROXY", "COMPOSITE")


@asynccontextmanager
async def running_scene(scenario: Scenario, folder: Path, goals: list[Goal]) -> AsyncIterator[Scene]:
    """Run the system with everything that the faults need."""

    def bridge() -> tuple[str, int]:
        return _internal(system, "bridge-1")

    def server() -> tuple[str, int]:
        if scenario.mode != "z-client":
            return _internal(system, "websocket-1")
        return "127.0.0.1", system.process("websocket-1").public_port or 0

    async with Relay(bridge) as relay, Relay(server) as upstream:
        trace = None if scenario.trace is None else read_trace(Path(scenario.trace), batch=scenario.batch)
        names = _names(scenario) if trace is None else trace.endpoints
        more = [*_relay_settings(scenario, relay, upstream), *settings_of(scenario.faults, names)]
        if scenario.plan is not None:
            # Nobody has to move.
            more += ["--set", "metadata:DIEM_METADATA_MOVE_SECONDS=0.5"]
        more += traffic_plan.settings_of(scenario.faults) + groups.settings_of(scenario.mode, scenario.faults)
        variables = variables_of(scenario.faults) | attack.variables_of(scenario.faults)
        if scenario.tokens:
            variables |= {f"DIEM_{edge}_ANONYMOUS": scenario.anonymous for edge in EDGES}
            # The harness reads without a key.
            variables |= {"DIEM_DATA_ANONYMOUS_READS": "auto"}
        if (retained := scenario.retained_data_bytes) is not None:
            variables |= {f"DIEM_{process}_RETAINED_DATA_BYTES": str(retained) for process in RETAINING}
        variables |= scenario.variables
        trees = None if scenario.release is None else Trees(folder, scenario.release)
        options = [*scenario.options, *more, *attack.options_of(scenario.faults)]
        tables = attack.tables_of(scenario.faults) + (mix.TABLES if scenario.mixes else "")
        system = System(scenario.mode, folder, options, variables, tables, program=scenario.program, trees=trees)
        async with system, AsyncExitStack() as stack:
            key = await system.create_api_key() if scenario.tokens else ""
            brokers = Brokers(system, scenario.kafka)
            writer = _writer(scenario, system, brokers, names, trace)
            watched = writer.endpoints + (writer.collections if scenario.mixes else [])
            outsiders = await stack.enter_async_context(watching(system, watched, key)) if key else None
            writer.quiet = quiet_of(scenario.faults, names)
            if scenario.plan is not None:
                # A plan does not move endpoints that nobody has published.
                await writer.put_all()
                await apply_file(system, brokers.options, Path(scenario.plan))
            async with ClientProcess(_plan(scenario, system, watched, key)) as clients:
                seed, quick = scenario.seed, scenario.quick
                yield Scene(system, writer, brokers, clients, relay, upstream, seed, trace, quick, goals=goals)
            await writer.close()
            if outsiders is not None:
                goals += outsiders.goals()


def _internal(system: System, name: str) -> tuple[str, int]:
    try:
        url = urlsplit(system.process(name).internal_url or "")
    except NotUp as error:
        raise ConnectionRefusedError(str(error)) from error
    return url.hostname or "", url.port or 0


def _relay_settings(scenario: Scenario, relay: Relay, upstream: Relay) -> list[str]:
    """Return the settings that direct links through a relay."""
    settings = []
    if CUTS & set(scenario.faults):
        settings.append(f"websocket-1:DIEM_WEBSOCKET_FEED_URL=ws://127.0.0.1:{relay.port}/feed")
        settings.append(f'bridge-1:DIEM_INTERNAL_ADDRESSES=["127.0.0.1:{relay.port}"]')
    if UPSTREAM_CUTS & set(scenario.faults):
        whose = "PUBLIC" if scenario.mode == "z-client" else "INTERNAL"
        settings.append(f"bridge-1:DIEM_BRIDGE_SERVER_{whose}_URL=ws://127.0.0.1:{upstream.port}/ws")
        settings.append(f'websocket-1:DIEM_INTERNAL_ADDRESSES=["127.0.0.1:{upstream.port}"]')
        if scenario.mode == "z-proxy":
            # The relay's port is none that `diem up` knows.
            settings.append('proxy-1:DIEM_PROXY_ALLOWED=["127.0.0.0/8"]')
            settings.append('metadata:DIEM_METADATA_ALLOWED=["127.0.0.0/8"]')
    return [word for setting in settings for word in ("--set", setting)]


def _names(scenario: Scenario) -> list[str]:
    if scenario.mixes:
        return mix.names_of(scenario.endpoints)
    return [f"{mix.ROOT}{number:03}" for number in range(scenario.endpoints)]


def _writer(scenario: Scenario, system: System, brokers: Brokers, names: list[str], trace: Trace | None) -> Writer:
    random = Random(scenario.seed)
    if scenario.to_topic and trace is not None:
        return TopicWriter(brokers, names, trace.watched, random)
    kind = MixedWriter if scenario.mixes else Writer
    return kind(system.rest, system.write_key, names, random, rate=scenario.rate, points=scenario.points)


def _plan(scenario: Scenario, system: System, names: list[str], key: str) -> Plan:
    return Plan(
        servers=system.servers,
        rest=system.rest,
        metadata=system.metadata,
        endpoints=names,
        clients=scenario.clients,
        addresses=max(16, scenario.clients // PER_ADDRESS),
        start_seconds=max(0.5, scenario.clients / (TOKENS_PER_S if key else CONNECTS_PER_S)),
        subscriptions=scenario.subscriptions,
        communities=scenario.communities,
        probes=scenario.probes,
        data=scenario.data,
        compression=scenario.compression,
        polls=scenario.polls,
        streams=scenario.streams,
        churn_seconds=scenario.churn_seconds,
        filtered=scenario.mode == "all-to-all",
        seed=scenario.seed,
        api_key=key,
        # Behind the front proxy of the attack.
        read_key=key if ATTACK in scenario.faults else "",
        token_seconds=scenario.token_seconds,
        trace=None if scenario.trace is None else Path(scenario.trace),
        limited=mix.groups_of(names) if key else [],
    )
