"""The Python client of ``diem.v1.json``: subscribe, iterate over events, reconnect with the known versions.

Reading order: ``backoff`` (delays and rates), ``tokens``, ``link`` (one connection), ``values`` (by kind), ``client``
(one server), ``fetches`` (data not sent with updates); for groups of servers ``routes``, ``group_choice``,
``partitioned``. Except for these three, the SDK has the same algorithms in modules of the same names
(``client/src/sdk``), and both pass the cases in ``tests/cases``.
"""

from diem.client.backoff import Timing
from diem.client.client import BaseClient, Event, Kind, UpdatesClient
from diem.client.fetches import CompletedEvents, Fetch, FetchDelayed
from diem.client.partitioned import PartitionedClient
from diem.client.tokens import TokenFunction
from diem.client.values import EndpointSnapshot

__all__ = [
    "BaseClient",
    "CompletedEvents",
    "EndpointSnapshot",
    "Event",
    "Fetch",
    "FetchDelayed",
    "Kind",
    "PartitionedClient",
    "Timing",
    "TokenFunction",
    "UpdatesClient",
]
