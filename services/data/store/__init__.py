"""The store: the latest dataset of every endpoint, its version, and the sequence of changes that the feed serves.

Reading order: ``store`` (open, load, serve), ``writer`` (queue and group commit), ``write_plan`` (effects of writes,
pure), ``group`` (what a group reads, decides and writes), ``traced_writes``, ``reader``, ``index``, ``retention``
(which old versions, already hidden by ``reader``, are deleted; defaults in ``services.data.limits``); ``database`` with
``sqlite`` and ``postgres`` (each with its SQL of a group), ``transaction`` (all other SQL), ``tables``,
``alembic_runs`` and ``migrations``; ``undo`` (old versions of patched contents), ``retention_clock``,
``rollback_guard``. ``Store`` is not exported here: sources need no database.
"""

from services.data.store.index import EndpointHead, StoredVersion
from services.data.store.rollback_guard import MARK_FILE
from services.data.store.write_plan import (
    Accepted,
    Change,
    Checkpoint,
    Deletion,
    IdempotencyKey,
    Patch,
    Precondition,
    Write,
)

__all__ = [
    "MARK_FILE",
    "Accepted",
    "Change",
    "Checkpoint",
    "Deletion",
    "EndpointHead",
    "IdempotencyKey",
    "Patch",
    "Precondition",
    "StoredVersion",
    "Write",
]
