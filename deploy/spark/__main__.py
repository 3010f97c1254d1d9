"""`python -m deploy.spark` downloads what the pipeline's Kafka source needs; part of `make spark`, and never fails."""

import sys

from deploy.jars import JarsUnavailable
from deploy.spark.jars import JARS


def main() -> None:
    """Download the jars; report progress, and a failure in one line."""
    try:
        JARS.prepare(_print_progress)
    except JarsUnavailable as error:
        _print(str(error))


def _print_progress(there: int, total: int) -> None:
    if there == 0:
        _print(f"Downloading Spark's connector to Kafka ({total} jars, once) ...")


def _print(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    main()
