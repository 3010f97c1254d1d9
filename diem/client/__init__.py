"""The Python client of DIEM: the library (:class:`Client`), and the parts it is made of. README.md is for its users.

Reading order: ``deployment`` (the library); ``backoff`` (delays and rates), ``tokens``, ``http``, ``polling`` (without
WebSocket), ``link`` (one connection), ``values`` (by kind), ``client`` (one server), ``fetches`` (data not sent with
updates); for groups of servers ``routes``, ``group_choice``, ``partitioned``. Except for the first and these three, the
SDK has the same algorithms in modules of the same names (``client/src/sdk``), and both pass the cases in
``tests/cases``.

It imports websockets, h11, orjson and the standard library alone: a contract of import-linter.
"""

from diem.client.backoff import Timing
from diem.client.client import BaseClient, Event, Kind, UpdatesClient
from diem.client.deployment import Client, Closed, ConnectionLost, Rejected, RequestFailed, ServiceProblem, Update
from diem.client.fetches import CompletedEvents, DataMissing, Fetch, FetchDelayed
from diem.client.http import Unreachable
from diem.client.partitioned import PartitionedClient
from diem.client.tokens import TokenFunction
from diem.client.values import EndpointSnapshot

__all__ = [
    "BaseClient",
    "Client",
    "Closed",
    "CompletedEvents",
    "ConnectionLost",
    "DataMissing",
    "EndpointSnapshot",
    "Event",
    "Fetch",
    "FetchDelayed",
    "Kind",
    "PartitionedClient",
    "Rejected",
    "RequestFailed",
    "ServiceProblem",
    "Timing",
    "TokenFunction",
    "Unreachable",
    "Update",
    "UpdatesClient",
]
