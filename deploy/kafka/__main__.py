"""`python -m deploy.kafka`: a local Kafka until Ctrl-C, without the rest of DIEM."""

import argparse
import asyncio
import logging
import signal
import sys
from contextlib import suppress
from pathlib import Path

from deploy.kafka import brokers
from deploy.kafka.program import KafkaProgram, prepare
from diem.errors import ConfigurationError, DiemError

_POLL_EVERY_S = 0.5


def main() -> int:
    """Return the exit code: 0 after a signal, 1 when a broker fails or jars cannot be had, 2 for what one must mend."""
    parser = argparse.ArgumentParser(prog="python -m deploy.kafka", description=__doc__)
    parser.add_argument("--brokers", type=int, choices=brokers.SIZES, default=1)
    parser.add_argument("--directory", type=Path, default=Path(".diem/kafka"), help="of the data (%(default)s)")
    parser.add_argument("--prepare", action="store_true", help="only download what is missing; never fails")
    chosen = parser.parse_args()
    try:
        program = prepare(_print_progress)
        if not chosen.prepare:
            asyncio.run(_run(chosen.directory, chosen.brokers, program))
    except KeyboardInterrupt:  # while downloading
        return 130
    except DiemError as error:
        _print(str(error))
        return 0 if chosen.prepare else 2 if isinstance(error, ConfigurationError) else 1
    return 0


async def _run(directory: Path, count: int, program: KafkaProgram) -> None:
    from deploy.kafka.cluster import LocalCluster  # noqa: PLC0415  # its client is not needed to prepare

    # It warns of every broker that does not answer yet.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with LocalCluster(directory, count, prepare=lambda: program) as cluster:
        print(cluster.bootstrap_servers, flush=True)  # noqa: T201  # it is what the command is for
        while not stopping.is_set():
            if (failed := cluster.failed()) is not None:
                raise failed
            await _pause(stopping)


async def _pause(stopping: asyncio.Event) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(stopping.wait(), _POLL_EVERY_S)


def _print_progress(there: int, total: int) -> None:
    if there == 0:
        _print(f"Downloading Kafka ({total} jars, once) ...")


def _print(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
