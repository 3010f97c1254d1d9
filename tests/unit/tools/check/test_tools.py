"""The printed lines of Kafka's tools: complete, quoted, and no more rights than a role needs."""

import shlex
from itertools import pairwise

import pytest

from diem.errors import ConfigurationError
from diem.kafka.config import KafkaOptions
from diem.kafka.topics import updates_spec
from tools.check.tools import acl_lines, parse_principals, topic_lines, traffic_lines, wrap_line

SECURE = KafkaOptions("a:9092,b:9092", security_protocol="SASL_SSL", topic_prefix="try.", partitions=24, replication=5)
RESOURCES = ("--topic", "--group", "--cluster", "--transactional-id")


def values(line: str, option: str) -> list[str]:
    words = shlex.split(line)
    return [after for word, after in pairwise(words) if word == option]


def test_the_topic_lines_have_every_setting_of_the_topics() -> None:
    line, *side_topics = topic_lines(SECURE)
    spec = updates_spec(SECURE, 3)
    assert line.startswith(
        "kafka-topics.sh --bootstrap-server a:9092,b:9092 --command-config client.properties --create"
    )
    assert values(line, "--topic") == ["try.updates"]
    assert (values(line, "--partitions"), values(line, "--replication-factor")) == (["24"], ["5"])
    assert dict(text.split("=", 1) for text in values(line, "--config")) == dict(spec.config)
    assert [(values(each, "--topic"), values(each, "--partitions")) for each in side_topics] == [
        (["try.updates.hot"], ["1"]),
        (["try.partition-map"], ["1"]),
    ]
    assert all(values(each, "--config") == values(line, "--config") for each in side_topics)


def test_the_topic_of_recorded_traffic_has_a_line_of_its_own() -> None:
    comment, line = traffic_lines(SECURE)
    assert comment.startswith("# ")
    assert (values(line, "--topic"), values(line, "--partitions")) == (["try.traffic"], ["12"])
    assert "retention.ms=604800000" in values(line, "--config")
    assert not any("try.traffic" in each for each in topic_lines(SECURE))


def rights(lines: list[str], principal: str) -> set[tuple[str, ...]]:
    found = set()
    for line in lines:
        if not line.startswith("#") and values(line, "--allow-principal") == [principal]:
            resource = next(o for o in RESOURCES if o in shlex.split(line))
            name = "" if resource == "--cluster" else values(line, resource)[0]
            pattern = "*" if values(line, "--resource-pattern-type") == ["prefixed"] else ""
            found.add((resource.removeprefix("--"), name + pattern, *values(line, "--operation")))
    return found


def test_every_role_has_exactly_the_rights_that_it_uses() -> None:
    who = parse_principals(["data=alice", "bridge=User:CN=bridge,O=Grid company"])
    lines = list(acl_lines(SECURE, who))
    assert rights(lines, "User:alice") == {
        ("topic", "try.updates", "Read", "Write", "Describe", "DescribeConfigs"),
        ("topic", "try.updates.hot", "Read", "Write", "Describe", "DescribeConfigs"),
        ("topic", "try.partition-map", "Read", "Write", "Describe", "DescribeConfigs"),
        ("transactional-id", "try.map", "Write", "Describe"),
        ("topic", "try.traffic", "Write", "Describe"),
    }
    assert rights(lines, "User:CN=bridge,O=Grid company") == {
        ("topic", "try.updates", "Read", "Describe"),
        ("topic", "try.updates.hot", "Read", "Describe"),
        ("topic", "try.partition-map", "Read", "Describe"),
        ("group", "try.x-*", "Read", "Describe"),
        ("group", "try.z-*", "Read", "Describe"),
    }
    assert rights(lines, "User:diem-metadata") == {
        ("topic", "try.updates", "Describe", "Alter"),
        ("topic", "try.partition-map", "Read", "Write", "Describe"),
        ("transactional-id", "try.map", "Write", "Describe"),
        ("group", "try.z-*", "Describe"),
    }
    assert rights(lines, "User:diem-edge") == {("topic", "try.traffic", "Write", "Describe")}
    assert rights(lines, "User:diem-pipeline") == {
        ("topic", "try.traffic", "Read", "Describe"),
        ("group", "try.pipeline*", "Read", "Describe"),
    }
    looked_at = {name for kind, name, *_ in rights(lines, "User:diem-check") if kind == "topic"}
    assert looked_at >= {"try.updates", "try.updates.hot", "try.partition-map"}
    assert ("cluster", "", "Describe", "DescribeConfigs") in rights(lines, "User:diem-check")


def test_every_line_is_a_comment_or_a_command_with_the_connection() -> None:
    for line in (*topic_lines(SECURE), *traffic_lines(SECURE), *acl_lines(SECURE)):
        words = shlex.split(line.removeprefix("# "), posix=True) if "kafka-" in line else []
        assert line.startswith("#") or words[0] in {"kafka-topics.sh", "kafka-acls.sh"}
        if words and not line.startswith("#"):
            assert words[1:5] == ["--bootstrap-server", "a:9092,b:9092", "--command-config", "client.properties"]
    assert not any("--command-config" in line for line in acl_lines(KafkaOptions("a:9092")))


@pytest.mark.parametrize("width", [60, 80])
def test_lines_are_wrapped_and_stay_the_same_for_a_shell(width: int) -> None:
    for line in (*topic_lines(SECURE), *traffic_lines(SECURE), *acl_lines(SECURE)):
        wrapped = wrap_line(line, width)
        assert max(map(len, wrapped.splitlines())) <= width
        if line.startswith("#"):
            assert all(each.startswith("# ") for each in wrapped.splitlines())
            uncommented = "\n".join(each.removeprefix("# ") for each in wrapped.splitlines())
            joined = uncommented.replace("\\\n", "").split()
            assert joined == line.removeprefix("# ").split()
        else:
            assert shlex.split(wrapped.replace("\\\n", "")) == shlex.split(line)


@pytest.mark.parametrize("text", ["writer=bob", "data", "data="])
def test_a_principal_needs_a_known_role_and_a_name(text: str) -> None:
    with pytest.raises(ConfigurationError, match="data, bridge, metadata, edge, pipeline, check"):
        parse_principals([text])
