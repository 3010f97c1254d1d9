"""Where benchmarks of the Data Service have their stores."""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.support import postgres
from tests.support.postgres import Cluster, NoPostgres


@contextmanager
def stores(name: str) -> Iterator[tuple[Path, Cluster | None]]:
    """Yield an empty folder, for SQLite, and a cluster of PostgreSQL; None, with a line, where it is not installed."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"diem-{name}-")))
        try:
            cluster = stack.enter_context(postgres.running())
        except NoPostgres as error:
            print(error, file=sys.stderr)
            cluster = None
        yield folder, cluster
