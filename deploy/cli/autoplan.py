"""The command `diem autoplan`: plans and applies by itself, on a schedule."""

import importlib.util
import time
from pathlib import Path
from typing import Annotated, Final

import typer

from deploy.cli.options import StateDirOption
from deploy.planning.autoplan import FAILED, Interrupted, Journal, Policy, SubprocessRunner, pause, run_round
from deploy.planning.context import KeyOption, MetadataOption, parse_share
from deploy.planning.traffic_input import RELEVANT_MS, remove_old
from deploy.system.state_dir import StateDir
from deploy.terminal import DEFAULT_STATE_DIR
from diem.process import lifecycle, log
from diem.process.lifecycle import Lifecycle
from metadata.jobs.warehouse import Warehouse
from metadata.statistics.constants import DAY_MS
from metadata.statistics.window import parse_span

DRAIN_S: Final = 30.0
"""For the command that is interrupted, with its JVM."""
NAME: Final = "autoplan"
"""Of the statistics and the plan's file: those of a round replace those of the round before."""


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command("autoplan")(autoplan_command)


def autoplan_command(
    *,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    every: Annotated[str, typer.Option(help="Time from one round to the next, such as 15m or 1h.")] = "1h",
    once: Annotated[bool, typer.Option("--once", help="One round; exit code 1 if it fails.")] = False,
    window: Annotated[
        str,
        typer.Option(
            help="Length of the traffic that is learnt from; it ends with the last, which is at most as long ago."
        ),
    ] = "1h",
    movement: Annotated[str, typer.Option(help="Subscriptions that may move in a round.")] = "1%",
    servers: Annotated[str | None, typer.Option(help="Numbers of servers to plan for; default: as there are.")] = None,
    hot_budget: Annotated[str, typer.Option(help="Load that endpoints on every server may add.")] = "0.5%",
    costs: Annotated[Path | None, typer.Option(help="File of `make bench-cost`; default: figures built in.")] = None,
    traffic: Annotated[Path | None, typer.Option(help="Recorded traffic; default: in the state directory.")] = None,
    spark: Annotated[
        bool | None, typer.Option("--spark/--no-spark", help="Run the pipeline, or read files; default: if it is here.")
    ] = None,
    keep_days: Annotated[
        int,
        typer.Option(min=0, help="Without Spark: files that were read are kept so long, and as long as they matter."),
    ] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be applied.")] = False,
    metadata: MetadataOption = None,
    key_file: KeyOption = None,
) -> int:
    """Learn, plan and apply what pays, again and again; never moves more than the budget, and says what it decides."""
    log.configure("error", "console")
    state, period = StateDir(state_dir), parse_span(every) / 1000
    for text, option in ((movement, "--movement"), (hot_budget, "--hot-budget")):
        parse_share(text, option)
    length = parse_span(window)
    pipeline, learning = learning_of(state, window, traffic, spark=spark)
    where = ["--state-dir", str(state.path), *_given("--metadata", metadata), *_given("--key-file", key_file)]
    policy = Policy(
        where=where,
        pipeline=pipeline,
        plan=[
            *("--movement", movement, "--hot-budget", hot_budget),
            *("--out", str(state.path / "planned" / f"{NAME}.json")),
            *_given("--servers", servers),
            *_given("--costs", costs),
            *learning,
        ],
        dry_run=dry_run,
    )
    journal, life, failed = Journal(state.path, typer.echo), Lifecycle(DRAIN_S), False

    async def rounds() -> None:
        nonlocal failed
        commands = SubprocessRunner(life.stopping)
        while not life.stopping.is_set():
            started = time.monotonic()
            try:
                decision = await run_round(commands, policy)
            except Interrupted:
                return
            elapsed_s = time.monotonic() - started
            journal.record(decision, elapsed_s)
            failed = decision.what == FAILED
            if not failed and pipeline is None and traffic is None:
                # With one, what is read is removed by it. A window may have ended its own length ago.
                remove_old(state.path / "traffic" / "in", max(keep_days * DAY_MS, 2 * length + RELEVANT_MS))
            if once:
                return
            await pause(life.stopping, max(0.0, period - elapsed_s))

    with journal.lock():
        code = lifecycle.serve(life, rounds)
    return lifecycle.EXIT_FAILED if code == lifecycle.EXIT_OK and once and failed else code


def learning_of(
    state: StateDir, window: str, traffic: Path | None, *, spark: bool | None
) -> tuple[list[str] | None, list[str]]:
    """Return the options of `diem pipeline run`, None without it, and those of `diem plan` for what it learns from.

    What is learnt from is of the window's length in every round: other statistics, of whatever time, are left alone.
    """
    with_spark = importlib.util.find_spec("pyspark") is not None if spark is None else spark
    if with_spark and traffic is None:
        statistics = Warehouse(state.path / "traffic" / "warehouse").statistics / NAME
        return (
            ["--state-dir", str(state.path), "--window", window, "--name", NAME],
            ["--traffic", str(statistics)],
        )
    how = [] if with_spark and spark is None else ["--spark" if with_spark else "--no-spark"]
    return None, [*_given("--traffic", traffic), "--window", window, *how]


def _given(option: str, value: object) -> list[str]:
    return [] if value is None else [option, str(value)]
