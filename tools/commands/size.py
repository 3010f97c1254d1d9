"""The command ``diem size``: the Kafka cluster and the topic that a workload needs."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from deploy.cli.options import (
    NoCluster,
    StateDirOption,
    find_cluster,
    run_interactive,
    with_kafka_options,
)
from deploy.system.state_dir import StateDir
from deploy.terminal import DEFAULT_STATE_DIR, plain_console
from deploy.topology.kafka_users import KafkaUser
from diem.kafka.config import KafkaOptions
from diem.process import lifecycle
from learning.costs import DEFAULT, read_costs
from learning.modes.load import MAX_VALUE, Load
from tools.commands.options import PlannedOption, parse_planned
from tools.size import report
from tools.size.measure import measure
from tools.size.sizing import GIVEN, RECORD_BYTES, Figure, Figures, Limits
from tools.size.sizing import size as size_of


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command()(with_kafka_options(size))


def _refuse_batch(value: str | None) -> None:
    """Refuse an option of ``diem recommend`` that changes nothing here."""
    if value is not None:
        raise typer.BadParameter("Kafka has a record for each update, however many are written together: leave it out")


def size(
    *,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    updates: Annotated[
        float | None,
        typer.Option(min=0, help="Updates a second. If given, the running system is not measured."),
    ] = None,
    clients: Annotated[
        float | None, typer.Option(min=1, max=MAX_VALUE, help="Connected clients; needs --endpoints.")
    ] = None,
    endpoints: Annotated[float | None, typer.Option(min=1, max=MAX_VALUE, help="Number of endpoints.")] = None,
    subscriptions: Annotated[
        float | None, typer.Option(min=0.01, max=1e5, help="Subscriptions of each client. Default: 10.")
    ] = None,
    data_bytes: Annotated[
        float | None,
        typer.Option("--bytes", min=0, max=1e7, help="Size of an update's data, in bytes. Default: 0, no data."),
    ] = None,
    record_bytes: Annotated[
        float | None, typer.Option(min=1, help="Size of a record in Kafka, in bytes, instead of --bytes.")
    ] = None,
    subscribers: Annotated[
        float | None,
        typer.Option(min=0, help="Clients that receive an update, on average, instead of --clients and --endpoints."),
    ] = None,
    _batch: Annotated[str | None, typer.Option("--batch", hidden=True, callback=_refuse_batch, help="Refused.")] = None,
    brokers: Annotated[
        int | None,
        typer.Option(min=1, max=1000, help="Number of brokers. Default: as many as needed."),
    ] = None,
    session_timeout: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            help="The controllers' broker.session.timeout.ms, in seconds. Default: what Kafka shows, else 9.",
        ),
    ] = None,
    tolerate: Annotated[int, typer.Option(min=0, max=7, help="Brokers that may fail at the same time.")] = 1,
    planned: PlannedOption = None,
    latency: Annotated[
        float,
        typer.Option(
            min=0.001,
            help="Longest replication, in milliseconds, when every partition has a record at once.",
        ),
    ] = 100,
    unavailability: Annotated[
        float,
        typer.Option(
            min=0.001,
            help="Longest unavailability after the loss of a broker, in seconds. To detect the loss takes 1.07 "
            "session timeouts of it.",
        ),
    ] = 20,
    storage: Annotated[float | None, typer.Option(min=0.001, help="Write rate of a broker's disk, in MB/s.")] = None,
    network: Annotated[float | None, typer.Option(min=0.001, help="Network rate of a broker, in MB/s.")] = None,
    costs: Annotated[
        Path | None, typer.Option(help="Output file of `make bench-cost`. Default: built-in figures.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    kafka: Mapping[str, object],
) -> int:
    """Compute how many brokers, partitions and replicas a workload needs: the running system's, or a given one.

    The exit code is 1 if nothing satisfies the requirements.
    """
    limits = Limits(
        tolerate=tolerate,
        planned=parse_planned(planned, None),
        latency_s=latency / 1000,
        unavailability_s=unavailability,
        storage=None if storage is None else storage * 1e6,
        network=None if network is None else network * 1e6,
    )
    constants = DEFAULT if costs is None else read_costs(costs)
    of_clients = {"clients": clients, "endpoints": endpoints, "subscriptions": subscriptions}
    given = {
        "updates": updates,
        **_given_load(subscribers, of_clients, record_bytes, data_bytes),
        "brokers": brokers,
        "session_timeout_s": session_timeout,
    }
    state, found = StateDir(state_dir), list[Figures]()

    async def read() -> None:
        found.append(await measure(state, _kafka_of(state, kafka)))

    if updates is not None:
        found.append(Figures())
    elif code := run_interactive(read):
        return code
    if not found:  # interrupted
        return lifecycle.EXIT_OK
    limits = replace(limits, planned=_planned_sizes(planned, found[0]))
    changed = {name: Figure(value, GIVEN) for name, value in given.items() if value is not None}
    sizing = size_of(found[0].replaced(changed), limits, constants)
    if as_json:
        typer.echo(json.dumps(report.as_json(sizing)))
    else:
        console = plain_console()
        for part in report.render(sizing):
            console.print(part)
    return lifecycle.EXIT_OK if sizing.solution.feasible else lifecycle.EXIT_FAILED


def _given_load(
    subscribers: float | None,
    clients: Mapping[str, float | None],
    record_bytes: float | None,
    data_bytes: float | None,
) -> dict[str, float | None]:
    """Return the figures given for a load, each in one of two ways. Raises ``typer.BadParameter`` for both ways."""
    if subscribers is None:
        subscribers = _subscribers(**clients)
    elif set(clients.values()) != {None}:
        raise typer.BadParameter("give --subscribers, or --clients, --endpoints and --subscriptions")
    if data_bytes is not None:
        if record_bytes is not None:
            raise typer.BadParameter("give --bytes, the data of an update, or --record-bytes, with all else")
        record_bytes = RECORD_BYTES + data_bytes
    return {"subscribers": subscribers, "record_bytes": record_bytes}


def _subscribers(clients: float | None, endpoints: float | None, subscriptions: float | None) -> float | None:
    """Return the clients that receive an update, as ``diem recommend`` computes them. Raises ``typer.BadParameter``."""
    if clients is None and endpoints is None and subscriptions is None:
        return None
    if clients is None or endpoints is None:
        raise typer.BadParameter("--clients and --endpoints: both or neither (with --subscriptions, default 10)")
    load = Load(clients, endpoints, updates=0)
    return (load if subscriptions is None else replace(load, subscriptions=subscriptions)).frames_per_update


def _planned_sizes(planned: str | None, figures: Figures) -> tuple[int, ...]:
    return parse_planned(planned, int(figures.servers.value) if figures.partitioned else None)


def _kafka_of(state: StateDir, kafka: Mapping[str, object]) -> KafkaOptions | None:
    """Return the cluster to describe; None if neither the options nor a running system have one."""
    try:
        return find_cluster(state, kafka, KafkaUser.CHECK).options
    except NoCluster:
        return None
