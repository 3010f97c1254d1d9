"""``python -m deploy.kafka`` (``make kafka``): download what a local Kafka needs, if it is missing."""

import sys

from deploy.jars import print_progress
from deploy.kafka.program import prepare
from diem.errors import DiemError
from diem.process import lifecycle, log


def main() -> int:
    """Return 0, also where something cannot be downloaded now, which is reported; 130 after Ctrl-C."""
    log.configure("error", "console")
    try:
        prepare(print_progress("Kafka"))
    except KeyboardInterrupt:
        return 130
    except DiemError as error:
        lifecycle.report(error)
    return lifecycle.EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
