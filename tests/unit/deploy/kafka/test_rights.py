"""Rights at a local Kafka; those of ``diem topics --print`` are tested with the printed lines."""

from deploy.kafka.rights import COMPOSITE, of_local_users
from deploy.topology.kafka_users import KafkaUser
from diem.kafka.config import Names

NAMES = Names("try.")


def holders(operation: str, resource: str, name: str) -> set[KafkaUser]:
    return {
        right.role
        for right in of_local_users(NAMES)
        if operation in right.operations
        and right.resource == resource
        and (name.startswith(right.name) if right.prefixed else name == right.name)
    }


def test_only_the_data_service_writes_updates() -> None:
    for topic in NAMES.log:
        assert holders("Write", "topic", topic) == {KafkaUser.DATA}


def test_only_bridges_join_the_groups_of_bridges() -> None:
    for group in (NAMES.x_group(1), NAMES.z_group(1)):
        assert holders("Read", "group", group) == {KafkaUser.BRIDGE, KafkaUser.COMPOSITE}


def test_topics_are_created_by_those_who_write_them() -> None:
    for topic in (*NAMES.topics, NAMES.traffic):
        creators = holders("Create", "topic", topic)
        assert KafkaUser.DATA in creators
        assert creators <= holders("Write", "topic", topic)
    assert not any("Create" in right.operations for right in of_local_users(NAMES) if right.resource == "cluster")


def test_composite_may_do_what_its_children_may() -> None:
    granted: dict[KafkaUser, set[object]] = {}
    for right in of_local_users(NAMES):
        granted.setdefault(right.role, set()).update((each, *right[2:]) for each in right.operations)
    assert granted[KafkaUser.COMPOSITE] == set().union(*(granted[role] for role in COMPOSITE))
    assert not {KafkaUser.OPERATOR, KafkaUser.BROKER} & set(granted), "they are super users"
