"""The jars of the local Kafka: named and checksummed in `jars.lock`.

`python -m deploy.kafka.jars` makes `jars.lock` and `features.checkpoint` anew, after a change of Kafka's version.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from deploy.jars import Fetch, JarSet, JarsUnavailable, Progress, fetch, locked, resolve, write_lock
from deploy.kafka import brokers, java

__all__ = ["LOCK", "VERSION", "JarsUnavailable", "Progress", "cache_directory", "fetch", "locked", "prepare"]

VERSION: Final = "4.4.0"
"""Of Kafka."""
LOCK: Final = Path(__file__).with_name("jars.lock")


def prepare(
    progress: Progress = lambda _there, _total: None, *, directory: Path | None = None, fetch: Fetch = fetch
) -> tuple[Path, ...]:
    """Return the class path; see :meth:`deploy.jars.JarSet.prepare`."""
    return _jars().prepare(progress, directory=directory, fetch=fetch)


def cache_directory() -> Path:
    """Return where the jars are kept."""
    return _jars().cache_directory()


def _jars() -> JarSet:
    return JarSet(f"kafka-{VERSION}", LOCK, "the local Kafka", "--bootstrap-servers does without them")


ROOTS: Final = (f"org.apache.kafka:kafka_2.13:{VERSION}", "org.apache.logging.log4j:log4j-slf4j-impl:2.25.5")
"""The broker, and what writes its log."""
LEFT_OUT: Final = frozenset({"org.apache.kafka:kafka-tools-api"})
"""The broker does without, and this version of it is not in the registry."""
HEADER: Final = "Made by `python -m deploy.kafka.jars`: the class path of the local Kafka, with sha256."


def write_features() -> None:
    """Have Kafka's own tool format a directory, and keep what it says of the features; it is the same on every node."""
    with tempfile.TemporaryDirectory() as name:
        (plan,) = plans = brokers.plans(Path(name), [(9092, 9093)])
        cluster_id = brokers.write(plans)
        shutil.rmtree(plan.directory / "data")
        *command, _, _ = brokers.argv(java.find(), prepare(), plan)
        tool = ["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(plan.properties_file)]
        subprocess.run([*command, *tool], check=True)  # noqa: S603
        shutil.copyfile(plan.features_file, brokers.FEATURES)


def main() -> None:
    """Write both files."""
    write_lock(LOCK, HEADER, resolve(ROOTS, LEFT_OUT))
    write_features()


if __name__ == "__main__":
    main()
