"""Emulation of Kafka's tools for the lines of `diem topics --print`, beyond what aiokafka supports."""

import argparse
import shlex
from collections.abc import Iterator
from typing import Final

from aiokafka.admin import NewTopic

# Numbers of Kafka's protocol guide.
_TOPIC, _GROUP, _CLUSTER, _TRANSACTIONAL_ID = 2, 3, 4, 5
_ALLOW: Final = 3
_PATTERNS: Final = {"literal": 3, "prefixed": 4}
_OPERATIONS: Final = {"Read": 3, "Write": 4, "Alter": 7, "Describe": 8, "DescribeConfigs": 10}

Right = tuple[int, str, int, str, str, int, int]
"""The arguments of aiokafka's `CreateAclsRequest`."""


def rights(line: str) -> Iterator[Right]:
    """Return the ACLs of a `kafka-acls.sh` line; an unknown option fails the test."""
    said = _acls.parse_args(shlex.split(line))
    kinds = {_TOPIC: said.topic, _GROUP: said.group, _CLUSTER: "kafka-cluster" if said.cluster else None}
    kinds[_TRANSACTIONAL_ID] = said.transactional_id
    ((kind, name),) = ((kind, name) for kind, name in kinds.items() if name is not None)
    pattern = _PATTERNS[said.resource_pattern_type]
    for operation in said.operation:
        yield kind, name, pattern, said.allow_principal, "*", _OPERATIONS[operation], _ALLOW


def new_topic(line: str) -> NewTopic:
    """Return the topic of a `kafka-topics.sh` line."""
    said = _topics.parse_args(shlex.split(line))
    config = dict(each.split("=", 1) for each in said.config)
    return NewTopic(said.topic, said.partitions, said.replication, topic_configs=config)


def _tool(name: str, command: str) -> argparse.ArgumentParser:
    tool = argparse.ArgumentParser(name, allow_abbrev=False)
    tool.add_argument("tool", choices=[name])
    tool.add_argument("--bootstrap-server", required=True)
    tool.add_argument("--command-config", required=True)
    tool.add_argument(command, action="store_true", required=True)
    tool.add_argument("--topic")
    return tool


_acls = _tool("kafka-acls.sh", "--add")
_acls.add_argument("--allow-principal", required=True)
_acls.add_argument("--operation", action="append", required=True)
_acls.add_argument("--resource-pattern-type", default="literal")
_acls.add_argument("--group")
_acls.add_argument("--transactional-id")
_acls.add_argument("--cluster", action="store_true")
_topics = _tool("kafka-topics.sh", "--create")
_topics.add_argument("--partitions", type=int, required=True)
_topics.add_argument("--replication-factor", type=int, required=True, dest="replication")
_topics.add_argument("--config", action="append", default=[])
