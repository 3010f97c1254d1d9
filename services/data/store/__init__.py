"""The store: every endpoint's latest dataset with its version, and the order of changes that the feed is made of.

Reading order: ``store`` (open, load, serve), ``writer`` (queue and group commit), ``write_plan`` (what a write does,
pure), ``transaction`` (its SQL), ``reader``, ``index``, ``retention``; ``database`` with ``sqlite`` and ``postgres``,
``tables``; ``backup``, ``backup_file`` and ``rollback_guard``.
"""

from services.data.store.index import EndpointHead
from services.data.store.retention import HistoryLimits, StoredVersion
from services.data.store.rollback_guard import MARK_FILE
from services.data.store.store import Store, StoreLimits
from services.data.store.write_plan import Accepted, IdempotencyKey, Write
from services.data.store.writer import WriterLimits

__all__ = [
    "MARK_FILE",
    "Accepted",
    "EndpointHead",
    "HistoryLimits",
    "IdempotencyKey",
    "Store",
    "StoreLimits",
    "StoredVersion",
    "Write",
    "WriterLimits",
]
