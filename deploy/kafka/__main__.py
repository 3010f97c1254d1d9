"""`python -m deploy.kafka`: a local Kafka until Ctrl-C, without the rest of DIEM, and without users or passwords."""

import argparse
import logging
import sys
from pathlib import Path

from deploy.jars import print_progress
from deploy.kafka import brokers
from deploy.kafka.program import KafkaProgram, prepare
from diem.errors import DiemError
from diem.process import lifecycle, log
from diem.process.lifecycle import Lifecycle

_POLL_S = 0.5


def main() -> int:
    """Return the exit code: 0 after a signal, 1 if a broker fails or jars are unavailable, 2 for errors to fix."""
    parser = argparse.ArgumentParser(prog="python -m deploy.kafka", description=__doc__)
    parser.add_argument("--brokers", type=int, choices=brokers.SIZES, default=1)
    parser.add_argument("--directory", type=Path, default=Path(".diem/open-kafka"), help="of the data (%(default)s)")
    parser.add_argument("--prepare", action="store_true", help="only download what is missing; never fails")
    chosen = parser.parse_args()
    log.configure("error", "console")
    # It warns of every broker not answering yet.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    try:
        program = prepare(print_progress("Kafka"))
    except KeyboardInterrupt:
        return 130
    except DiemError as error:
        code = lifecycle.report(error)
        return lifecycle.EXIT_OK if chosen.prepare else code
    return lifecycle.EXIT_OK if chosen.prepare else _run(chosen.directory, chosen.brokers, program)


def _run(directory: Path, count: int, program: KafkaProgram) -> int:
    from deploy.kafka.cluster import STOPPED_WITHIN_S, LocalCluster  # noqa: PLC0415  # not needed to prepare

    life = Lifecycle(drain_seconds=STOPPED_WITHIN_S + 5)

    async def run() -> None:
        async with LocalCluster(directory, count, prepare=lambda: program) as cluster:
            print(cluster.bootstrap_servers, flush=True)  # noqa: T201  # it is what the command is for
            while not life.stopping.is_set():
                if (failed := cluster.failed()) is not None:
                    raise failed
                await life.pause(_POLL_S)

    return lifecycle.serve(life, run)


if __name__ == "__main__":
    sys.exit(main())
