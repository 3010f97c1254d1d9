"""The command ``diem metrics``: every metric by name, and what Prometheus and Grafana need to show them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from deploy.cli.options import StateDirOption, run_interactive
from deploy.system import control
from deploy.system.scrape_targets import scrape_targets
from deploy.system.state_dir import StateDir
from deploy.terminal import DEFAULT_STATE_DIR
from diem.process.metrics import ALL, Definition
from tools.prometheus import configuration


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command()(metrics)


def metrics(
    *,
    prometheus: Annotated[
        bool, typer.Option("--prometheus", help="Print a prometheus.yml for the running `diem up`.")
    ] = False,
    static: Annotated[
        bool,
        typer.Option("--static", help="With --prometheus: list the targets; print it again after `diem scale`."),
    ] = False,
    key_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --prometheus: its own copy of metrics.key; default: the original."),
    ] = None,
    dashboard: Annotated[bool, typer.Option("--dashboard", help="Print the dashboard for Grafana (JSON).")] = False,
    alerts: Annotated[bool, typer.Option("--alerts", help="Print the alert rules for Prometheus (YAML).")] = False,
    hosts: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="With --prometheus: for processes on several hosts, the directory that `diem config MODE --hosts` has "
            "written; print it again after changes.",
        ),
    ] = None,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
) -> int:
    """List every metric, or print what Prometheus and Grafana need to show them."""
    if prometheus + dashboard + alerts > 1:
        raise typer.BadParameter("--prometheus, --dashboard and --alerts exclude each other")
    if not prometheus and (static or key_file is not None or hosts is not None):
        raise typer.BadParameter("--static, --key-file and --hosts belong to --prometheus")
    if hosts is not None:
        return _print_configuration_of_hosts(hosts, key_file)
    if prometheus:
        return _print_configuration(StateDir(state_dir), key_file, static=static)
    if dashboard:
        typer.echo(configuration.DASHBOARD.read_text(encoding="utf-8"), nl=False)
    elif alerts:
        typer.echo(configuration.ALERTS.read_text(encoding="utf-8"), nl=False)
    else:
        for each in ALL:
            for line in _lines(each):
                typer.echo(line)
    return 0


def _print_configuration(state: StateDir, key_file: Path | None, *, static: bool) -> int:
    async def show() -> None:
        # Even for a file of targets: without a `diem up` there is none.
        status = await control.request(state, "status")
        targets = scrape_targets(status) if static else state.targets_file
        key = (key_file or state.metrics_key_file).absolute()
        for line in configuration.configuration(key, targets):
            typer.echo(line)

    return run_interactive(show)


def _print_configuration_of_hosts(directory: Path, key_file: Path | None) -> int:
    from tools.hosts.status import metrics_key, read_description  # noqa: PLC0415  # of several hosts alone

    targets = scrape_targets(read_description(directory))
    key = (key_file or metrics_key(directory)).absolute()
    for line in configuration.configuration(key, targets):
        typer.echo(line)
    return 0


def _lines(metric: Definition) -> Iterator[str]:
    labels = f"; labels: {', '.join(metric.labels)}" if metric.labels else ""
    yield f"{metric.exposed_name}  ({metric.kind}{labels})"
    yield f"    {metric.help}"
