"""The command ``diem doctor``: what of this machine keeps DIEM from working."""

import json
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from deploy.admin.findings import Situation
from deploy.cli.mode_options import config_file, read_config
from deploy.cli.options import NoCluster, StateDirOption, find_cluster, run_interactive
from deploy.system import control
from deploy.system.control import ControlFailed
from deploy.system.description import with_children
from deploy.system.state_dir import NotUp, StateDir
from deploy.terminal import DEFAULT_STATE_DIR, plain_console
from deploy.topology.kafka_users import KafkaUser
from diem.errors import ConfigurationError, DiemError
from diem.process import lifecycle
from diem.process.ports import is_free
from learning.sizing.even import planned_sizes
from tools import doctor
from tools.diagnosis import Diagnosis, as_json_values, fault, has_fault, ok, print_table

MAX_COLUMNS: Final = 120


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command("doctor")(doctor_command)


def doctor_command(
    *,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File to check. Default: ./diem.toml, if it exists.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Check this machine: files, ports, limits, clock, certificates, Kafka, and what runs.

    The exit code is 1 if there is a fault.
    """
    found: list[Diagnosis] = []

    async def examine() -> None:
        found.extend(await _diagnoses(StateDir(state_dir), config_file(config)))
        if as_json:
            typer.echo(json.dumps({"checks": as_json_values(found)}))
        else:
            console = plain_console()
            console.width = min(console.width, MAX_COLUMNS)
            print_table(console, "check", found, with_remedies=True)

    # The client library logs every failed attempt.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    code = run_interactive(examine)
    return lifecycle.EXIT_FAILED if code == lifecycle.EXIT_OK and has_fault(found) else code


async def _diagnoses(state: StateDir, config: Path | None) -> list[Diagnosis]:
    found = [*doctor.of_state_dir(state), *_of_config(config)]
    status: dict[str, Any] | None = None
    try:
        status = await control.request(state, "status")
    except NotUp:
        found.append(ok("diem up", "not running"))
    except ControlFailed as error:
        found.append(fault("diem up", str(error), f"Read {state.logs}; restart it."))
    found += doctor.of_ports(is_free, running=status is not None)
    found.append(doctor.of_open_files())
    rows = [] if status is None else with_children(status["processes"])
    reports = {name: row["report"] for name, row in rows if row.get("report")}
    found += doctor.of_clock(doctor.is_clock_synchronised(), reports)
    found += doctor.of_programs()
    if status is not None:
        found += doctor.of_certificate(Path(status["certificate"]) if status["certificate"] else None, time.time())
        found += doctor.of_processes(Situation(status, time.time_ns() // 1_000_000, state.logs))
    return found + [each async for each in _of_kafka(state)]


def _of_config(file: Path | None) -> list[Diagnosis]:
    if file is None:
        return []
    try:
        read_config(file)
    except (ConfigurationError, OSError) as error:
        return [fault("configuration", str(error), "Correct the file; `diem sources check` tries its sources.")]
    return [ok("configuration", f"{file} is valid")]


async def _of_kafka(state: StateDir) -> AsyncIterator[Diagnosis]:
    """Yield the audit's faults where a cluster is named by a variable, or runs here."""
    try:
        cluster = find_cluster(state, {}, KafkaUser.CHECK)
    except NoCluster:
        return
    except ConfigurationError as error:
        yield doctor.unreachable(error)
        return
    if cluster.options.served is not None:
        return
    try:
        from tools.check import collect, report  # noqa: PLC0415  # an extra, and only where there is a cluster

        tolerate = 0 if len(cluster.started) == 1 else 1
        sizes = planned_sizes(cluster.servers)
        facts = await collect.collect(
            cluster.options, collect.CheckInput(tolerate, sizes, cluster.started, cluster.restart)
        )
    except DiemError as error:
        yield doctor.unreachable(error)
        return
    for each in doctor.of_kafka(report.audit(facts), cluster.options.bootstrap_servers):
        yield each
