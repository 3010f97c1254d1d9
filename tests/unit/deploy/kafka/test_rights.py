"""Rights at a local Kafka; those of ``diem topics --print`` are tested with the printed lines."""

from deploy.kafka.rights import COMPOSITE, of_local_users, purposes
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


def test_nobody_writes_a_topic_that_is_served_as_it_is() -> None:
    names = Names("try.orders.", "orders")
    rights = [right for purpose in purposes(names) for right in purpose.rights]
    writers = {(right.role, right.name) for right in rights if {"Write", "Create", "Alter"} & set(right.operations)}
    assert writers == {(KafkaUser.BRIDGE, "try.orders.epochs")}
    assert {right.name for right in rights if right.resource == "topic"} == {"orders", "try.orders.epochs"}
