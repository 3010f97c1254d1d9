"""The commands ``diem check`` and ``diem topics``: audit a Kafka cluster, and create its topics."""

import json
import logging
import shutil
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Final

import typer

from deploy.cli.options import (
    ADDRESS,
    NoCluster,
    StateDirOption,
    find_cluster,
    kafka_settings,
    run_interactive,
    with_kafka_options,
)
from deploy.system.state_dir import StateDir
from deploy.terminal import DEFAULT_STATE_DIR, amount, plain_console
from deploy.topology.kafka_users import KafkaUser
from diem.errors import ConfigurationError
from diem.kafka.client import connected_client
from diem.kafka.config import KafkaOptions
from diem.kafka.metadata import describe
from diem.kafka.topics import ensure, ensure_traffic
from diem.process import lifecycle
from tools.check import report
from tools.check.collect import CheckInput, collect
from tools.check.facts import Severity, replicas_of
from tools.check.tools import acl_lines, parse_principals, topic_lines, traffic_lines, wrap_line
from tools.commands.options import PlannedOption, parse_planned

MAX_COLUMNS: Final = 100
"""Width of findings, which are sentences, even if the output is not a terminal."""


def register(cli: typer.Typer) -> None:
    """Add the commands to ``diem``."""
    cli.command()(with_kafka_options(check))
    cli.command()(with_kafka_options(topics, (ADDRESS, "kafka_topic_prefix", "kafka_partitions", "kafka_replication")))


def check(
    *,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    tolerate: Annotated[int, typer.Option(min=0, max=7, help="Brokers that may fail at the same time.")] = 1,
    planned: PlannedOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    kafka: Mapping[str, object],
) -> int:
    """Audit a Kafka cluster for durability, retention and security. The exit code is 1 if there are faults."""
    cluster = find_cluster(StateDir(state_dir), kafka, KafkaUser.CHECK)
    _refuse_served(cluster.options)
    sizes = parse_planned(planned, cluster.servers)
    worst = Severity.OK

    async def evaluate() -> None:
        nonlocal worst
        facts = await collect(cluster.options, CheckInput(tolerate, sizes, cluster.started, cluster.restart))
        findings = report.audit(facts)
        worst = report.worst(findings)
        if as_json:
            typer.echo(json.dumps(report.as_json(facts, findings)))
            return
        console = plain_console()
        console.width = min(console.width, MAX_COLUMNS)
        for part in report.render(facts, findings, console.width):
            console.print(part)

    code = _quietly(evaluate)
    return lifecycle.EXIT_FAILED if code == lifecycle.EXIT_OK and worst is Severity.FAULT else code


def topics(
    *,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    printing: Annotated[
        bool, typer.Option("--print", help="Print the commands of Kafka's tools instead, for topics and rights.")
    ] = False,
    principal: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROLE=NAME",
            help="User of a role (with --print). Roles: data, bridge, metadata, edge, pipeline, check. Repeatable.",
        ),
    ] = None,
    traffic: Annotated[bool, typer.Option(help="Also create the topic of recorded traffic.")] = False,
    kafka: Mapping[str, object],
) -> int:
    """Create missing topics and check the others, or print the commands that create them."""
    state = StateDir(state_dir)
    if printing:
        options = _where_known(state, kafka)
        for line in (
            *(() if options.served else (*topic_lines(options), *traffic_lines(options))),
            *acl_lines(options, parse_principals(principal or [])),
        ):
            typer.echo(wrap_line(line, shutil.get_terminal_size().columns))
        return lifecycle.EXIT_OK
    cluster = find_cluster(state, kafka, KafkaUser.OPERATOR)
    _refuse_served(cluster.options)
    return _quietly(lambda: _ensure(cluster.options, traffic=traffic))


def _refuse_served(options: KafkaOptions) -> None:
    """Refuse a topic of other programs, whose settings are theirs. Raises ``ConfigurationError``."""
    if options.served is not None:
        raise ConfigurationError(
            f"topic {options.served.name} is served as it is, and this is for DIEM's own topics; `diem topics --print` "
            "prints the rights that bridges need there"
        )


async def _ensure(options: KafkaOptions, *, traffic: bool) -> None:
    async with connected_client(options, within=8.0) as client:
        before = await describe(client, *options.names.topics)
    cluster = await ensure(options)
    for name in options.names.topics:
        partitions, replicas = len(cluster.topics[name].partitions), replicas_of(cluster.topics[name])
        done = "OK" if name in before.topics else "created"
        typer.echo(f"{name}: {done} ({amount(partitions, 'partition')}, {amount(replicas, 'replica')})")
    if traffic:
        typer.echo(f"{options.names.traffic}: OK ({amount(len(await ensure_traffic(options)), 'partition')})")


def _where_known(state: StateDir, kafka: Mapping[str, object]) -> KafkaOptions:
    """Return the options of the cluster, with a placeholder for an unknown address."""
    try:
        return find_cluster(state, kafka, KafkaUser.OPERATOR).options
    except NoCluster:
        return kafka_settings({**kafka, "kafka_bootstrap_servers": "BROKER:9092"}).kafka()


def _quietly(work: Callable[[], Awaitable[None]]) -> int:
    # The client library logs every failed attempt; the command's error suffices.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    return run_interactive(work)
