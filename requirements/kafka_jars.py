"""``python -m requirements.kafka_jars``: the class path of the local Kafka, and its record of feature levels.

After a change of ``VERSION`` in ``deploy.kafka.jars``.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from deploy.kafka import brokers, java
from deploy.kafka.jars import JARS, VERSION
from requirements.locks import resolve, write_lock

ROOTS: Final = (f"org.apache.kafka:kafka_2.13:{VERSION}", "org.apache.logging.log4j:log4j-slf4j-impl:2.25.5")
"""The broker and its logging library."""
LEFT_OUT: Final = frozenset({"org.apache.kafka:kafka-tools-api"})
"""Not needed by the broker; this version is missing in the registry."""
HEADER: Final = "Made by `python -m requirements.kafka_jars`: the class path of the local Kafka, with sha256."


def write_features() -> None:
    """Format a directory with Kafka's own tool, and keep its record of feature levels, identical on every node."""
    with tempfile.TemporaryDirectory() as name:
        (plan,) = plans = brokers.plans(Path(name), [(9092, 9093)])
        cluster_id = brokers.write(plans)
        shutil.rmtree(plan.directory / "data")
        *command, _, _ = brokers.argv(java.find(), JARS.prepare(), plan)
        tool = ["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(plan.properties_file)]
        subprocess.run([*command, *tool], check=True)  # noqa: S603
        shutil.copyfile(plan.features_file, brokers.FEATURES)


def main() -> None:
    """Write both files."""
    write_lock(JARS.lock, HEADER, resolve(ROOTS, LEFT_OUT))
    write_features()


if __name__ == "__main__":
    main()
