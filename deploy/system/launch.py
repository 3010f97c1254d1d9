"""Programs started by ``diem up``: prerequisites and configuration of a mode, command lines, and environment."""

import os
import site
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from deploy.topology import Clients, Mode, Options, Ports, Programs
from deploy.topology.kafka_users import directory_of
from diem.errors import ConfigurationError, DiemError, install_command
from diem.process.addresses import HOST
from diem.process.cores import usable_cores
from diem.process.listeners import has_ipv6_loopback
from diem.process.modes import all_of

Progress = Callable[[int, int], None]
"""Called with the number of completed downloads, and their total."""


class PreparationFailed(ConfigurationError):
    """A prerequisite of the mode is unavailable; nothing was started."""


def check_prerequisites(options: Options) -> None:
    """Check that the programs of a system are installed.

    Raises:
        ConfigurationError: one is missing, with the remedy.
    """
    mode = options.mode
    if options.behind_nginx:
        try:
            from deploy import nginx  # noqa: PLC0415  # what renders its configuration is an extra
        except ImportError:
            raise _not_installed("nginx-config-builder", mode) from None
        nginx.find()
    if mode.uses_kafka:
        check_kafka_client(mode)
        if options.kafka.local_brokers:
            from deploy.kafka import java  # noqa: PLC0415  # only for modes with local brokers

            java.find()


def check_kafka_client(mode: Mode) -> None:
    """Check that the client of Kafka is installed. Raises ``ConfigurationError``."""
    if find_spec("aiokafka") is None:
        raise _not_installed("aiokafka", mode)


def prepare(
    mode: Mode, state_dir: Path, ports: Mapping[str, Ports], progress: Progress, *, clients: Clients, caches: bool
) -> Programs:
    """Write the configuration of nginx and the brokers, and download the brokers' jars once; blocks.

    Args:
        mode: what will run.
        state_dir: for the configuration.
        ports: of its processes.
        progress: of the downloads.
        clients: who may connect through nginx.
        caches: nginx may answer all readers with what it has.

    Raises:
        ConfigurationError: a program or the jars are unavailable, or existing data is of another cluster.
    """
    others: dict[str, tuple[str, ...]] = {}
    if all_of("nginx", ports):
        others["nginx"] = pdeathsig_command(_nginx(mode, state_dir / "nginx", ports, clients, caches=caches))
    if brokers := all_of("kafka", ports):
        argvs = _brokers(directory_of(state_dir), brokers, progress)
        others |= {name: pdeathsig_command(argv) for name, argv in argvs.items()}
    return Programs(command(), others)


def clean(options: Options) -> None:
    """Remove files that no later run uses."""
    if options.behind_nginx:
        from deploy import nginx  # noqa: PLC0415  # see ``check_prerequisites``

        nginx.remove_cache(options.state_dir / "nginx")


def _not_installed(package: str, mode: Mode) -> PreparationFailed:
    return PreparationFailed(f"mode {mode} needs {package}, which is not installed: {install_command('kafka')}")


def _nginx(
    mode: Mode, directory: Path, ports: Mapping[str, Ports], clients: Clients, *, caches: bool
) -> tuple[str, ...]:
    from deploy import nginx  # noqa: PLC0415  # see ``check_prerequisites``

    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    nginx.remove_cache(directory)
    plan = nginx.NginxPlan.of(
        mode,
        clients,
        ports,
        directory,
        limit_loopback=clients.limits_loopback,
        workers=usable_cores(),
        open_files=nginx.open_files(),
        reserved=True,
        both_loopbacks=clients.public.listen == HOST and has_ipv6_loopback(),
        cache=nginx.new_cache(directory) if caches else None,
    )
    nginx.write(directory, nginx.render(plan))
    return nginx.argv(nginx.find(), directory)


def _brokers(directory: Path, ports: Sequence[Ports], progress: Progress) -> dict[str, tuple[str, ...]]:
    from deploy.jars import JarsUnavailable  # noqa: PLC0415
    from deploy.kafka import brokers, program  # noqa: PLC0415

    try:
        broker = program.prepare(progress)
    except JarsUnavailable as error:
        raise PreparationFailed(str(error)) from error
    plans = brokers.plans(directory, [(own.public or 0, own.internal or 0) for own in ports])
    brokers.write(plans, with_users=True)
    return {f"kafka-{plan.node}": broker.argv(plan) for plan in plans}


@dataclass(eq=False)
class ProcessNotStarted(DiemError):
    """A process did not become ready."""

    template = "{name} does not start: {reason} (see {log})"

    name: str
    reason: str
    log: Path


class Misconfigured(ProcessNotStarted, ConfigurationError):
    """A process did not become ready because its configuration is invalid."""


def command() -> tuple[str, ...]:
    """Return the command line of ``diem`` with this interpreter and installation."""
    return (sys.executable, "-m", "deploy")


def pdeathsig_command(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command line to run a third-party program that ends with its parent."""
    return (sys.executable, "-m", "deploy.system.pdeathsig", *argv)


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of children, in a checkout with our packages on PYTHONPATH.

    Settings of Kafka are left out: the topology sets them for processes that use Kafka.
    """
    environ = {name: value for name, value in environ.items() if not name.startswith("DIEM_KAFKA_")}
    root = str(Path(__file__).resolve().parents[2])
    # Never site-packages: PYTHONPATH precedes the standard library.
    if root in {str(Path(path).resolve()) for path in (*site.getsitepackages(), site.getusersitepackages())}:
        return dict(environ)
    others = [path for path in environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != root]
    return {**environ, "PYTHONPATH": os.pathsep.join([root, *others])}
