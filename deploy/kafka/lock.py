"""`python -m deploy.kafka.lock` makes `jars.lock` and `features.checkpoint` anew, after a change of Kafka's version."""

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from deploy.kafka import brokers, java
from deploy.kafka.jars import LOCK, VERSION, fetch, prepare

ROOTS: Final = (f"org.apache.kafka:kafka_2.13:{VERSION}", "org.apache.logging.log4j:log4j-slf4j-impl:2.25.5")
"""The broker, and what writes its log."""
LEFT_OUT: Final = frozenset({"org.apache.kafka:kafka-tools-api"})
"""The broker does without, and this version of it is not in the registry."""
HEADER: Final = "# Made by `python -m deploy.kafka.lock`: the class path of the local Kafka, with sha256.\n"


def resolve(scratch: Path) -> list[str]:
    """Return the coordinates of every jar that the roots need to run, sorted; downloads their descriptions only."""
    from jgo.maven import MavenContext  # noqa: PLC0415

    context = MavenContext(repo_cache=scratch)
    chosen: dict[str, str] = {}
    for root in ROOTS:
        inputs, others = context.resolver.resolve([context.create_dependency(root)])
        for needed in (*inputs, *(other for other in others if other.scope in {"compile", "runtime"})):
            chosen.setdefault(f"{needed.groupId}:{needed.artifactId}", needed.version)
    return sorted(f"{name}:{version}" for name, version in chosen.items() if name not in LEFT_OUT)


def write_lock() -> None:
    """Write the lock file; it is the old one until the new one is complete."""
    with tempfile.TemporaryDirectory() as name:
        lines = []
        for coordinate in resolve(Path(name)):
            content = fetch(coordinate, Path(name)).read_bytes()
            lines.append(f"{coordinate} {hashlib.sha256(content).hexdigest()}\n")
            sys.stderr.write(f"{coordinate}\n")
    new = LOCK.with_suffix(".new")
    new.write_text(HEADER + "".join(lines), encoding="utf-8")
    new.replace(LOCK)


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
    write_lock()
    write_features()


if __name__ == "__main__":
    main()
