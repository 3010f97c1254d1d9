"""The store: every endpoint's latest dataset with its version, and the order of changes that the feed is made of."""

from services.data.store.cache import Stored
from services.data.store.history import HistoryLimits, Kept
from services.data.store.mark import MARK_FILE
from services.data.store.plan import Accepted, IdempotencyKey
from services.data.store.state import Head
from services.data.store.store import Store, StoreLimits
from services.data.store.writer import WriterLimits

__all__ = [
    "MARK_FILE",
    "Accepted",
    "Head",
    "HistoryLimits",
    "IdempotencyKey",
    "Kept",
    "Store",
    "StoreLimits",
    "Stored",
    "WriterLimits",
]
