"""The private parts of aiokafka that the code uses: a release that changes one is noticed here, not by a bridge.

They were read in ``VERSION``, and pyproject.toml admits no later minor version. Before that bound is moved, the code
beside each use is read again in the new release.
"""

import ast
import importlib.metadata
import inspect
import textwrap
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.conn import create_conn
from aiokafka.consumer.fetcher import Fetcher, FetchError, FetchResult, PartitionRecords
from aiokafka.consumer.group_coordinator import GroupCoordinator, NoGroupCoordinator
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.producer.sender import Sender
from aiokafka.producer.transaction_manager import TransactionManager

ROOT: Final = Path(__file__).parents[4]
ROOMS: Final = ("bridge", "deploy", "diem", "learning", "metadata", "proxy", "services", "tools")
VERSION: Final = "0.14"
"""The release in which all of these were read."""
ATTRIBUTES: Final[dict[type, set[str]]] = {
    AIOKafkaConsumer: {"_client", "_coordinator", "_fetcher", "_subscription"},
    AIOKafkaProducer: {"_closed", "_sender", "_txn_manager"},
    AIOKafkaAdminClient: {"_client"},
    AIOKafkaClient: {
        "_bootstrap_servers",
        "_conns",
        "_sasl_mechanism",
        "_sasl_plain_password",
        "_sasl_plain_username",
        "_security_protocol",
        "_ssl_context",
    },
    Fetcher: {"_fetch_task", "_fetcher_timeout", "_records", "_wait_consume_future"},
    FetchResult: {"_partition_records"},
    PartitionRecords: {"_records", "_tp", "next_fetch_offset"},
    GroupCoordinator: {
        "_closing",
        "_commit_refresh_task",
        "_coordination_task",
        "_heartbeat_task",
        "_pending_exception",
        "coordinator_id",
        "generation",
        "group_id",
        "member_id",
    },
    NoGroupCoordinator: {"_reset_committed_task"},
    TransactionManager: {"_sequence_numbers"},
}
"""Attributes, by the class whose methods set them."""
SIGNATURES: Final[dict[Any, str]] = {
    AIOKafkaClient.close: "(self)",
    AIOKafkaClient.force_metadata_update: "(self)",
    AIOKafkaClient.send: "(self, node_id, request, *, group=<ConnectionGroup.DEFAULT: 0>)",
    Fetcher._create_fetch_waiter: "(self)",
    Fetcher._notify: "(self, future)",
    FetchError: "(*, error, backoff)",
    FetchError.check_raise: "(self)",
    FetchResult._update_position: "(self)",
    FetchResult.check_assignment: "(self, tp)",
    GroupCoordinator.request_rejoin: "(self)",
    Sender.close: "(self)",
    SubscriptionState.assign_from_subscribed: "(self, assignment: 'set[TopicPartition]')",
    TransactionManager.wait_for_transaction_end: "(self)",
}
"""Methods and constructors that are called or overridden and are not documented."""


def modules() -> list[Path]:
    """Return the modules that use aiokafka."""
    files = (file for room in ROOMS for file in sorted((ROOT / room).rglob("*.py")))
    return [file for file in files if "aiokafka" in file.read_text(encoding="utf-8")]


def private_names(tree: ast.AST) -> set[str]:
    """Return the private names that are used of other objects than the module's own."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                continue
            case ast.Attribute(attr=name):
                found.add(name)
            case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(name)), *_]):
                found.add(name)
    # Named tuples have public methods with a private name.
    return {name for name in found - {"_asdict", "_replace"} if name.startswith("_") and not name.startswith("__")}


@cache
def assigned(of: type) -> frozenset[str]:
    """Return the attributes that a class and its bases assign to ``self``, and their properties."""
    found = set[str]()
    for each in of.__mro__[:-1]:
        found |= {name for name, value in vars(each).items() if isinstance(value, property)}
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(each)))):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                found.add(node.attr)
    return frozenset(found)


def test_only_the_release_whose_parts_were_read_is_admitted() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (bound,) = [each for each in project["optional-dependencies"]["kafka"] if each.startswith("aiokafka")]
    major, minor = map(int, VERSION.split("."))
    assert bound == f"aiokafka>={VERSION},<{major}.{minor + 1}"
    assert importlib.metadata.version("aiokafka").startswith(f"{VERSION}.")


@pytest.mark.parametrize(("of", "name"), [(of, name) for of, names in ATTRIBUTES.items() for name in sorted(names)])
def test_private_attribute_exists(of: type, name: str) -> None:
    assert name in assigned(of)


@pytest.mark.parametrize("part", SIGNATURES, ids=lambda part: part.__qualname__)
def test_signature_is_that_which_was_read(part: Any) -> None:
    assert str(inspect.signature(part)) == SIGNATURES[part]


def test_a_connection_is_made_with_the_options_of_a_client() -> None:
    needed = {"security_protocol", "ssl_context", "sasl_mechanism", "sasl_plain_username", "sasl_plain_password"}
    assert needed <= inspect.signature(create_conn).parameters.keys()


def test_connections_are_kept_by_node_and_group() -> None:
    client = AIOKafkaClient.__new__(AIOKafkaClient)
    assert (1, ConnectionGroup.DEFAULT) not in dict(getattr(client, "_conns", {}))
    assert "self._conns[conn_id]" in inspect.getsource(AIOKafkaClient._get_conn)
    assert "conn_id = (node_id, group)" in inspect.getsource(AIOKafkaClient._get_conn)


@pytest.mark.parametrize("file", modules(), ids=lambda file: str(file.relative_to(ROOT)))
def test_every_private_part_that_is_used_is_listed(file: Path) -> None:
    listed = set().union(*ATTRIBUTES.values()) | {part.__name__ for part in SIGNATURES}
    tree = ast.parse(file.read_text(encoding="utf-8"))
    used = private_names(tree)
    assert used <= listed
    assert not used or f"internals of aiokafka ({VERSION})" in (ast.get_docstring(tree) or "").replace("\n", " ")
