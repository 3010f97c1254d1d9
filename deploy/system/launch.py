"""Programs that ``diem up`` starts: prerequisites and configuration of a mode, command lines, and environment."""

import os
import site
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from deploy.topology import Mode, Options, Ports, Programs
from deploy.topology.kafka_users import directory_of
from diem.errors import ConfigurationError, DiemError
from diem.process.addresses import HOST
from diem.process.listeners import has_ipv6_loopback

Progress = Callable[[int, int], None]
"""Called with the number of completed downloads, and their total."""


class PreparationFailed(ConfigurationError):
    """A prerequisite of the mode is not available; nothing was started."""


def check_prerequisites(options: Options) -> None:
    """Check that the programs of the mode are installed.

    Raises:
        ConfigurationError: one is missing, with what to install.
    """
    if options.mode.behind_nginx:
        try:
            from deploy import nginx  # noqa: PLC0415  # what renders its configuration is an extra
        except ImportError:
            raise _not_installed("nginx-config-builder", options.mode) from None
        nginx.find()
    if options.mode.uses_kafka:
        if find_spec("aiokafka") is None:
            raise _not_installed("aiokafka", options.mode)
        if options.kafka.local_brokers:
            from deploy.kafka import java  # noqa: PLC0415  # only for modes with local brokers

            java.find()


def prepare(options: Options, ports: Mapping[str, Ports], progress: Progress) -> Programs:
    """Write the configuration of nginx and the brokers, and download the brokers' jars once; blocks.

    Raises:
        ConfigurationError: a program or the jars are unavailable, or existing data is of another cluster.
    """
    others: dict[str, tuple[str, ...]] = {}
    if options.mode.behind_nginx:
        others["nginx"] = pdeathsig_command(_nginx(options, ports))
    if options.mode.uses_kafka and options.kafka.local_brokers:
        others |= {name: pdeathsig_command(argv) for name, argv in _brokers(options, ports, progress).items()}
    return Programs(command(), others)


def clean(options: Options) -> None:
    """Remove what no later run uses."""
    if options.mode.behind_nginx:
        from deploy import nginx  # noqa: PLC0415  # see ``check_prerequisites``

        nginx.remove_cache(options.state_dir / "nginx")


def _not_installed(package: str, mode: Mode) -> PreparationFailed:
    return PreparationFailed(f"mode {mode} needs {package}, which is not installed: pip install 'diem[kafka]'")


def _nginx(options: Options, ports: Mapping[str, Ports]) -> tuple[str, ...]:
    from deploy import nginx  # noqa: PLC0415  # see ``check_prerequisites``

    directory = options.state_dir / "nginx"
    edge = options.mode.edge
    per_address = options.clients_per_address or nginx.PER_ADDRESS
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    nginx.remove_cache(directory)
    plan = nginx.NginxPlan(
        directory=directory,
        port=ports["nginx"].public or 0,
        data=(ports["data"].public_address,),
        slots=tuple(own.public_address for name, own in ports.items() if name.startswith(f"{edge}-")),
        per_address=per_address,
        # As many as may be connected at once may also reconnect at once, after an outage.
        connects_per_s=max(nginx.CONNECTS_PER_S, per_address),
        limit_loopback=options.limits_loopback,
        workers=os.cpu_count() or 1,
        open_files=nginx.open_files(),
        front_proxies=options.front_proxies,
        listen=options.public.listen,
        reserved=True,
        both_loopbacks=options.public.listen == HOST and has_ipv6_loopback(),
        certificate=options.public.certificate,
        key=options.public.key,
        cache=nginx.new_cache(directory) if options.public_reads else None,
        hosts=options.public.page_hosts,
    )
    nginx.write(directory, nginx.render(plan))
    return nginx.argv(nginx.find(), directory)


def _brokers(options: Options, ports: Mapping[str, Ports], progress: Progress) -> dict[str, tuple[str, ...]]:
    from deploy.jars import JarsUnavailable  # noqa: PLC0415
    from deploy.kafka import brokers, program  # noqa: PLC0415

    try:
        broker = program.prepare(progress)
    except JarsUnavailable as error:
        raise PreparationFailed(str(error)) from error
    pairs = [(own.public or 0, own.internal or 0) for name, own in ports.items() if name.startswith("kafka-")]
    plans = brokers.plans(directory_of(options.state_dir), pairs)
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
    """Return the command line that runs a third-party program so that it ends with its parent."""
    return (sys.executable, "-m", "deploy.system.pdeathsig", *argv)


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of children, in a checkout with our packages on PYTHONPATH.

    Settings of Kafka are left out: the topology has them for the processes that use Kafka.
    """
    environ = {name: value for name, value in environ.items() if not name.startswith("DIEM_KAFKA_")}
    root = str(Path(__file__).resolve().parents[2])
    # Never site-packages: PYTHONPATH precedes the standard library.
    if root in {str(Path(path).resolve()) for path in (*site.getsitepackages(), site.getusersitepackages())}:
        return dict(environ)
    others = [path for path in environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != root]
    return {**environ, "PYTHONPATH": os.pathsep.join([root, *others])}
