"""`python -m learning.spark`: download the jars of the pipeline's Kafka source, in `make spark`, and never fails."""

import sys

from deploy.jars import JarsUnavailable, print_progress
from learning.spark.jars import JARS


def main() -> None:
    """Download the jars; report progress, and a failure in one line."""
    try:
        JARS.prepare(print_progress("Spark's connector to Kafka"))
    except JarsUnavailable as error:
        sys.stderr.write(f"{error}\n")


if __name__ == "__main__":
    main()
