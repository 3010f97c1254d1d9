"""Fixtures that any test may take, and what holds for all."""

import functools
import gc
import os
import random
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

import httpx
import hypothesis
import pytest
from hypothesis.internal import charmap
from hypothesis.internal.conjecture import providers
from hypothesis.internal.intervalsets import IntervalSet

from diem.process.imports import skip_sniffio
from tests.support import fork_server
from tests.support.commandline import heed_interrupts
from tests.support.databases import databases, postgres
from tests.support.fork_server import executed_processes
from tests.support.kafka import kafka, kafka_options, kafka_program, on_kafka, own_broker, own_broker_options
from tests.support.scheduling import SchedulingPlugin
from tests.support.shared import SharedServicesPlugin
from tests.support.spark_session import OPTIONS

__all__ = [
    "databases",
    "executed_processes",
    "kafka",
    "kafka_options",
    "kafka_program",
    "on_kafka",
    "own_broker",
    "own_broker_options",
    "postgres",
]

_SERVICES = pytest.StashKey[SharedServicesPlugin]()

# How long an example takes is a matter of the machine, and of what else it does. The suite tries the same few examples
# each time: more and new ones are for `make walks`.
_FACTOR = int(os.environ.get("DIEM_WALKS_FACTOR", "0"))
hypothesis.settings.register_profile(
    "any machine",
    max_examples=40 * _FACTOR or 25,
    derandomize=not _FACTOR,
    database=None,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("any machine")

if not _FACTOR:
    # Else examples have constants of the modules that are imported by then: they would depend on the tests before, and
    # to find the constants takes each process of a run seconds.
    providers.is_local_module_file = lambda _path: False  # type: ignore[assignment, attr-defined]

# Hypothesis finds out which characters UTF-8 has, all but surrogates, by trying: 3 s for each process of a new clone.
_UTF_8 = IntervalSet(((0, 0xD7FF), (0xE000, sys.maxunicode))), IntervalSet(())
_intervals_from_codec = charmap.intervals_from_codec
charmap.intervals_from_codec = lambda codec: _UTF_8 if codec == "utf-8" else _intervals_from_codec(codec)  # type: ignore[assignment]

# Each client of httpx reads the certificates of all authorities when it is made: 17 ms of CPU time, and tests make
# thousands, none of which speaks TLS.
httpx._transports.default.create_ssl_context = functools.cache(  # type: ignore[attr-defined]
    httpx.create_ssl_context
)

skip_sniffio()


def pytest_configure(config: pytest.Config) -> None:
    """Give the run its shared services and its order."""
    os.environ.setdefault("SPARK_SUBMIT_OPTS", OPTIONS)
    _put_diem_first_on_path(config)
    heed_interrupts()
    services = config.stash[_SERVICES] = SharedServicesPlugin(config)
    config.pluginmanager.register(services)
    fork_server.install(lambda: str(services.ask("fork server")["address"]))
    config.pluginmanager.register(SchedulingPlugin())


def _put_diem_first_on_path(config: pytest.Config) -> None:
    """Have messages name ``diem`` alike on all machines (deploy/invocation.py), whatever else has this name.

    The other programs of the environment stay as they are found without it. Workers take the PATH of the main process.
    """
    script = Path(sys.executable).with_name("diem")
    if hasattr(config, "workerinput") or not script.is_file():
        return
    folder = tempfile.TemporaryDirectory(prefix="diem-path-")
    config.add_cleanup(folder.cleanup)
    (Path(folder.name) / script.name).symlink_to(script)
    os.environ["PATH"] = f"{folder.name}{os.pathsep}{os.environ.get('PATH', os.defpath)}"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector from traversing modules and tests, which all stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let what the product draws in this process, such as jitter, be the same each time that a test runs.

    A test that holds for most draws would else be red on one day in many. Processes that it starts draw anew.
    """
    random.seed(item.nodeid)


@pytest.fixture(scope="session")
def shared_services(pytestconfig: pytest.Config) -> SharedServicesPlugin:
    """What starts brokers and database servers for the whole run."""
    return pytestconfig.stash[_SERVICES]
