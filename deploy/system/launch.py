"""Programs that `diem up` starts: prerequisites and configuration of a mode, command lines, and environment."""

import os
import site
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from deploy.topology import Mode, Options, Ports, Programs
from diem.errors import ConfigurationError, DiemError

Progress = Callable[[int, int], None]
"""Called with the number of downloads that are done, and their total."""


@dataclass(eq=False)
class PreparationFailed(ConfigurationError):
    """A prerequisite of the mode is not available; nothing was started."""

    template = "{reason}"

    reason: str


def check_prerequisites(options: Options) -> None:
    """Check that the programs of the mode are installed.

    Raises:
        ConfigurationError: one is missing, with what to install.
    """
    if options.mode.behind_nginx:
        _nginx_program()
    if options.mode.uses_kafka:
        _need_kafka_client(options.mode)
        if options.kafka.local_brokers:
            from deploy.kafka import java  # noqa: PLC0415  # the other modes need none of it

            java.find()


def prepare(options: Options, ports: Mapping[str, Ports], progress: Progress) -> Programs:
    """Write the configuration of nginx and the brokers, and download the brokers' jars once; blocks.

    Raises:
        ConfigurationError: a program is missing, the jars cannot be had, or the data there are of another cluster.
    """
    others: dict[str, tuple[str, ...]] = {}
    if options.mode.behind_nginx:
        others["nginx"] = pdeathsig_command(_nginx(options, ports))
    if options.mode.uses_kafka and options.kafka.local_brokers:
        others |= {name: pdeathsig_command(argv) for name, argv in _brokers(options, ports, progress).items()}
    return Programs(command(), others)


def _nginx_program() -> str:
    from deploy.nginx import program  # noqa: PLC0415

    try:
        import nginx.config.api  # noqa: F401, PLC0415  # an extra that mode single does without
    except ImportError:
        raise program.NoNginx("nginx-config-builder", "pip install nginx-config-builder") from None
    return program.find()


def _nginx(options: Options, ports: Mapping[str, Ports]) -> tuple[str, ...]:
    from deploy.nginx import config, program  # noqa: PLC0415

    found = program.find()
    directory = options.state_dir / "nginx"
    edge = options.mode.edge
    per_address = options.clients_per_address or config.PER_ADDRESS
    plan = config.NginxPlan(
        directory=directory,
        port=ports["nginx"].public or 0,
        data_port=ports["data"].public or 0,
        slots=tuple(own.public for name, own in ports.items() if name.startswith(f"{edge}-") and own.public),
        per_address=per_address,
        # As many as may be there at once may also come back at once, after an outage.
        connects_per_s=max(config.CONNECTS_PER_S, per_address),
        workers=os.cpu_count() or 1,
        open_files=program.open_files(),
    )
    program.write(directory, config.render(plan))
    return program.argv(found, directory)


def _need_kafka_client(mode: Mode) -> None:
    try:
        import aiokafka  # noqa: F401, PLC0415  # an extra
    except ImportError:
        raise PreparationFailed(f"aiokafka is not installed, and mode {mode} needs it: pip install aiokafka") from None


def _brokers(options: Options, ports: Mapping[str, Ports], progress: Progress) -> dict[str, tuple[str, ...]]:
    from deploy.kafka import brokers, program  # noqa: PLC0415
    from deploy.kafka.jars import JarsUnavailable  # noqa: PLC0415

    try:
        broker = program.prepare(progress)
    except JarsUnavailable as error:
        raise PreparationFailed(str(error)) from error
    pairs = [(own.public or 0, own.internal or 0) for name, own in ports.items() if name.startswith("kafka-")]
    plans = brokers.plans(options.state_dir / "kafka", pairs)
    brokers.write(plans)
    return {f"kafka-{plan.node}": broker.argv(plan) for plan in plans}


@dataclass(eq=False)
class ProcessNotStarted(DiemError):
    """A process did not become ready."""

    template = "{name} does not start: {reason} (see {log})"

    name: str
    reason: str
    log: Path


class Misconfigured(ProcessNotStarted, ConfigurationError):
    """A process did not become ready because its configuration is wrong."""


def command() -> tuple[str, ...]:
    """Return the command line of `diem` with this interpreter and installation."""
    return (sys.executable, "-m", "deploy")


def pdeathsig_command(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command line of a program of others that makes it end with its parent."""
    return (sys.executable, "-m", "deploy.system.pdeathsig", *argv)


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of children; in a checkout with our packages on PYTHONPATH.

    Settings of Kafka are left out: the plan has them for the processes that use it.
    """
    environ = {name: value for name, value in environ.items() if not name.startswith("DIEM_KAFKA_")}
    root = str(Path(__file__).resolve().parents[2])
    # Never site-packages: what is on PYTHONPATH comes before the standard library.
    if root in {str(Path(path).resolve()) for path in (*site.getsitepackages(), site.getusersitepackages())}:
        return dict(environ)
    others = [path for path in environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != root]
    return {**environ, "PYTHONPATH": os.pathsep.join([root, *others])}
