"""Options that several commands of `diem` share, those of Kafka among them, and how a command is run."""

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer
from pydantic import ValidationError

from deploy.system.state_dir import StateDir
from diem.errors import ConfigurationError
from diem.kafka.config import KafkaOptions, KafkaSettings
from diem.process import lifecycle
from diem.process.lifecycle import Lifecycle
from diem.process.settings import BadSettings, variable

EXIT_NOTHING: Final = 3
"""There is no traffic to learn from: no failure, but nothing was done."""
EXIT_INTERRUPTED: Final = 130


def _checked(path: Path) -> Path:
    StateDir(path).check()
    return path


StateDirOption = Annotated[
    Path,
    typer.Option("--state-dir", envvar="DIEM_STATE_DIR", help="Directory of keys, store and logs.", callback=_checked),
]
UrlOption = Annotated[
    str | None, typer.Option("--url", help="Base URL of a Data Service elsewhere; default: the one up here.")
]


def run_change(work: Callable[[], Awaitable[None]]) -> int:
    """Run a command that changes something; the exit code tells an interrupted one from a completed one."""
    done = False

    async def work_completely() -> None:
        nonlocal done
        await work()
        done = True

    code = run_interactive(work_completely)
    return code if done or code else EXIT_INTERRUPTED


def run_interactive(work: Callable[[], Awaitable[None]]) -> int:
    """Run a command that a person waits for: Ctrl-C ends it at once, with exit code 0."""
    life = Lifecycle(drain_seconds=0)
    return lifecycle.serve(life, work)


KAFKA_PANEL: Final = "Kafka"
_PREFIX: Final = "kafka_"
_FIELDS: Final = tuple(name for name in KafkaSettings.model_fields if name.startswith(_PREFIX))


class NoCluster(ConfigurationError):
    """No option, variable or running `diem up` names a cluster."""

    def __init__(self, state: StateDir) -> None:
        self.path = state.path
        super().__init__(state.path)

    def __str__(self) -> str:
        return f"no Kafka runs in {self.path}: start `diem up --mode x`, or name --bootstrap-servers"


class ChosenCluster(NamedTuple):
    """A cluster to connect to, and the ids of its brokers that the local `diem up` runs."""

    options: KafkaOptions
    started: frozenset[int]


def with_kafka_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options of `KafkaSettings` to a command, which gets the given ones as the mapping `kafka`."""
    own = inspect.signature(command)

    @functools.wraps(command)
    def run(**values: Any) -> int:  # noqa: ANN401  # whatever the command line parser found
        given = {name: value for name in _FIELDS if (value := values.pop(name, None)) is not None}
        return command(kafka=given, **values)

    others = [parameter for parameter in own.parameters.values() if parameter.name != "kafka"]
    run.__signature__ = own.replace(parameters=[*others, *map(_parameter, _FIELDS)])  # type: ignore[attr-defined]
    return run


def kafka_settings(given: Mapping[str, object]) -> KafkaSettings:
    """Return settings from options, by the names of `KafkaSettings`, over those of the environment.

    Raises:
        BadSettings: with one line for every fault.
    """
    try:
        return KafkaSettings(**given)  # type: ignore[arg-type]  # they are checked here
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        raise BadSettings(_line(fault["loc"], fault["msg"]) for fault in faults) from None


def find_cluster(state: StateDir, given: Mapping[str, object]) -> ChosenCluster:
    """Return the named cluster, else the one of the `diem up` in the state directory.

    Raises:
        NoCluster: there is neither.
        ConfigurationError: an option is not usable.
    """
    chosen = kafka_settings(given)
    if chosen.kafka_bootstrap_servers is not None:
        return ChosenCluster(chosen.kafka(), frozenset())
    processes = state.read_processes()
    # The settings of its processes; options of this command win.
    running = {f"{_PREFIX}{name}": value for name, value in processes.get("kafka", {}).items()}
    if not running:
        raise NoCluster(state)
    return ChosenCluster(kafka_settings({**running, **given}).kafka(), local_brokers(processes))


def local_brokers(processes: Mapping[str, Any]) -> frozenset[int]:
    """Return the ids of the brokers in the content of `processes.json`."""
    names = [str(p.get("name", "")) for p in processes.get("processes", ()) if p.get("process") == "kafka"]
    return frozenset(int(number) for name in names if (number := name.removeprefix("kafka-")).isdigit())


def _parameter(name: str) -> inspect.Parameter:
    field = KafkaSettings.model_fields[name]
    info = typer.Option(
        option_name(name), envvar=variable(KafkaSettings, name), help=field.description, rich_help_panel=KAFKA_PANEL
    )
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[str | None, info])


def option_name(name: str) -> str:
    """Return the option of a field of `KafkaSettings`."""
    return f"--{name.removeprefix(_PREFIX).replace('_', '-')}"


def _line(where: tuple[int | str, ...], text: str) -> str:
    fault = text.removeprefix("Value error, ")
    field = str(where[0]).lower().removeprefix("diem_") if where else ""
    return f"{option_name(field)}: {fault[:1].lower()}{fault[1:]}" if field else fault
