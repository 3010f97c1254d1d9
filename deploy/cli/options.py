"""Options shared by several commands of ``diem``, including Kafka's, and helpers to run commands."""

import functools
import inspect
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args, get_origin

import typer
from pydantic import ValidationError

from deploy.system.state_dir import StateDir
from deploy.topology import BadTopology, KafkaTopology, Mode
from deploy.topology.kafka_users import KafkaUser, directory_of
from diem.errors import ConfigurationError
from diem.kafka.config import KafkaOptions, KafkaSettings
from diem.process import lifecycle
from diem.process.lifecycle import Lifecycle
from diem.process.settings import BadSettings, from_environment, variable
from diem.protocol import endpoints

EXIT_NOTHING: Final = 3
"""Exit code without traffic to learn from: nothing failed, and nothing was done."""
EXIT_INTERRUPTED: Final = 130
STATE_DIR: Final = "DIEM_STATE_DIR"


def _checked(path: Path) -> Path:
    StateDir(path).check()
    return path


StateDirOption = Annotated[
    Path,
    typer.Option(
        "--state-dir", hidden=True, envvar=STATE_DIR, help="Directory of keys, store and logs.", callback=_checked
    ),
]
"""Of every command, and shown once: ``diem --state-dir DIR COMMAND`` sets the variable."""
UrlOption = Annotated[
    str | None, typer.Option("--url", help="Base URL of another Data Service. Default: that of `diem up`.")
]
ApiKeyOption = Annotated[
    Path | None, typer.Option("--key-file", metavar="FILE", help="File of an API key. Default: anonymous access.")
]
TokenOption = Annotated[
    Path | None,
    typer.Option(
        "--token-file", metavar="FILE", help="File of a client token (a JWT), which is read again before it expires."
    ),
]


MAX_COUNT: Final = 1000
_SHARE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*%")


def parse_counts(text: str, option: str) -> tuple[int, ...]:
    """Parse numbers from 1 to ``MAX_COUNT`` with commas; return them sorted and distinct. Raises ``BadParameter``."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and 1 <= int(word) <= MAX_COUNT for word in words):
        raise typer.BadParameter(f"{option} takes numbers from 1 to {MAX_COUNT}, separated by commas, not {text!r}")
    return tuple(sorted({int(word) for word in words}))


def parse_share(text: str, option: str) -> float:
    """Parse a percentage to a share. Raises ``typer.BadParameter``."""
    match = _SHARE.fullmatch(text.strip())
    if match is None or float(match[1]) > 100:
        raise typer.BadParameter(f"{option} is a percentage such as 0.5%, not {text!r}")
    return float(match[1]) / 100


def run_change(work: Callable[[], Awaitable[None]]) -> int:
    """Run a command with effects; an interrupted one exits with ``EXIT_INTERRUPTED``."""
    done = False

    async def work_completely() -> None:
        nonlocal done
        await work()
        done = True

    code = run_interactive(work_completely)
    return code if done or code else EXIT_INTERRUPTED


def run_interactive(work: Callable[[], Awaitable[None]]) -> int:
    """Run an interactive command: Ctrl-C ends it at once, with exit code 0."""
    life = Lifecycle(drain_seconds=0)
    return lifecycle.serve(life, work)


@dataclass(eq=False)
class UnusableFile(ConfigurationError):
    """A file named on the command line cannot be read or written, or has the wrong content."""

    template = "{file}: {reason}"

    file: str | Path
    reason: str


_PREFIX: Final = "kafka_"
ADDRESS: Final = "kafka_bootstrap_servers"
"""The only option of Kafka in the help: others are variables and, for ``diem up``, keys of ``[system]``."""
TOPIC: Final = "kafka_topic"
_KEY: Final = "kafka_topic_key"
ALL_KAFKA: Final = tuple(name for name in KafkaSettings.model_fields if name.startswith(_PREFIX))


@dataclass(eq=False)
class NoCluster(ConfigurationError):
    """No option, variable or running ``diem up`` names a cluster."""

    template = "no Kafka runs in {path}: start `diem up --mode x`, or give --bootstrap-servers"

    path: Path


class ChosenCluster(NamedTuple):
    """A cluster to connect to, and its relation to the local ``diem up``."""

    options: KafkaOptions
    started: frozenset[int] = frozenset()
    """Ids of its brokers."""
    restart: tuple[str, ...] = ("--mode", "x")
    """Options with which it was started."""
    servers: int | None = None
    """Number of servers that divide the partitions; None if they do not."""


def with_kafka_options(command: Callable[..., int], names: Collection[str] = (ADDRESS,)) -> Callable[..., int]:
    """Add options of ``KafkaSettings`` to a command, passed to it as the mapping ``kafka``; others are variables."""
    own = inspect.signature(command)

    @functools.wraps(command)
    def run(**values: Any) -> int:  # noqa: ANN401  # values of the command line parser
        given = {name: value for name in names if (value := values.pop(name, None)) is not None}
        return command(kafka=given, **values)

    others = [parameter for parameter in own.parameters.values() if parameter.name != "kafka"]
    run.__signature__ = own.replace(parameters=[*others, *map(_parameter, names)])  # type: ignore[attr-defined]
    return run


def kafka_settings(given: Mapping[str, object]) -> KafkaSettings:
    """Return the settings of the environment, overridden by options named as in ``KafkaSettings``.

    Raises:
        BadSettings: with a line for each fault.
    """
    try:
        return KafkaSettings.model_validate({**from_environment(KafkaSettings), **given})
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        raise BadSettings(_line(fault["loc"], fault["msg"], given) for fault in faults) from None


def topology_fields(chosen: KafkaSettings) -> dict[str, Any]:
    """Return the fields of ``KafkaTopology`` by the settings; those of a served topic only with one."""
    of_topic = (
        {"topic_key", "topic_key_form", "topic_partitioner", "topic_type"} if chosen.kafka_topic is None else set()
    )
    return {name: getattr(chosen, f"kafka_{name}") for name in KafkaTopology.settings() if name not in of_topic}


def find_cluster(state: StateDir, given: Mapping[str, object], user: KafkaUser) -> ChosenCluster:
    """Return the named cluster, else that of the ``diem up`` in the state directory.

    The brokers of ``diem up`` are used as ``user``, with the least rights needed.

    Raises:
        NoCluster: there is neither.
        ConfigurationError: an option is invalid.
    """
    chosen = kafka_settings(given)
    if chosen.kafka_bootstrap_servers is not None:
        return ChosenCluster(chosen.kafka())
    processes = state.read_processes()
    # The settings of its processes; variables and options of this command override them.
    running = {f"{_PREFIX}{name}": value for name, value in processes.get("kafka", {}).items()}
    if not running:
        raise NoCluster(state.path)
    started, directory = local_brokers(processes), directory_of(state.path)
    if started:
        login = user.settings(directory)
        running |= {f"{_PREFIX}{name}": value for name, value in login.items()}
    return ChosenCluster(
        kafka_settings(running | from_environment(KafkaSettings) | dict(given)).kafka(),
        started,
        *_as_started(processes),
    )


def _as_started(processes: Mapping[str, Any]) -> tuple[tuple[str, ...], int | None]:
    """Return the options of a running ``diem up``, and the number of servers that divide its partitions."""
    mode, servers, clones = Mode(processes["mode"]), int(processes["servers"]), int(processes["clones"])
    if mode is Mode.XZ:  # where the number counts composites, which divide nothing
        return ("--mode", mode, "--clones", str(servers)), None
    several = ("--clones", str(clones)) if clones > 1 else ()
    return ("--mode", mode, "--servers", str(servers), *several), servers if mode.partitioned else None


def local_brokers(processes: Mapping[str, Any]) -> frozenset[int]:
    """Return the ids of the brokers in the content of ``processes.json``."""
    names = [str(p.get("name", "")) for p in processes.get("processes", ()) if p.get("process") == "kafka"]
    return frozenset(int(number) for name in names if (number := name.removeprefix("kafka-")).isdigit())


def _parameter(name: str) -> inspect.Parameter:
    field = KafkaSettings.model_fields[name]
    # Validated by the settings; the parser treats all as texts.
    values = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    notes = (f"One of: {', '.join(values)}." if values else "", f"Default: {field.default}." if field.default else "")
    info = typer.Option(
        option_name(name),
        envvar=variable(KafkaSettings, name),
        hidden=name not in {ADDRESS, TOPIC, _KEY},
        help=" ".join(filter(None, (field.description, *notes))),
    )
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[str | None, info])


def option_name(name: str) -> str:
    """Return the option of a field of ``KafkaSettings``."""
    return "--key" if name == _KEY else f"--{name.removeprefix(_PREFIX).replace('_', '-')}"


def _line(where: tuple[int | str, ...], text: str, given: Mapping[str, object]) -> str:
    fault = text.removeprefix("Value error, ")
    field = str(where[0]).lower().removeprefix("diem_") if where else ""
    named = option_name(field) if field in given else f"DIEM_{field.upper()}"
    return f"{named}: {fault[:1].lower()}{fault[1:]}" if field else fault


def hot_endpoints(names: list[str]) -> tuple[str, ...]:
    """Return the validated names of hot endpoints, without duplicates. Raises ``BadTopology``."""
    try:
        for name in names:
            endpoints.check_written(name)
    except endpoints.BadName as error:
        raise BadTopology(f"--hot: {error}") from None
    return tuple(dict.fromkeys(names))
