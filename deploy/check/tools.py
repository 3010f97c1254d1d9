"""The lines of Kafka's own tools that change what a rule found."""

import shlex
from collections.abc import Mapping
from typing import Final

from deploy.check.facts import Facts

CLIENT_FILE: Final = "client.properties"
"""What the printed lines call the file with the security settings of Kafka's tools."""
_OTHER_OPTION: Final = {"kafka-leader-election.sh": "--admin.config"}


def tool(bootstrap_servers: str, security_protocol: str, name: str, *arguments: str) -> str:
    """Return a line for a shell: a tool of Kafka's, connected like us."""
    option = _OTHER_OPTION.get(name, "--command-config")
    secured = () if security_protocol == "PLAINTEXT" else (option, CLIENT_FILE)
    return shlex.join((name, "--bootstrap-server", bootstrap_servers, *secured, *arguments))


def of_cluster(facts: Facts, name: str, *arguments: str) -> str:
    """Return a line for the cluster of the facts."""
    return tool(facts.bootstrap_servers, facts.security_protocol, name, *arguments)


def set_topic(facts: Facts, topic: str, settings: Mapping[str, str]) -> str:
    """Return the line that changes settings of a topic."""
    entity = ("--entity-type", "topics", "--entity-name", topic)
    return of_cluster(facts, "kafka-configs.sh", "--alter", *entity, "--add-config", joined(settings))


def set_all_brokers(facts: Facts, settings: Mapping[str, str]) -> str:
    """Return the line that changes the brokers' default of settings that may change while they run."""
    entity = ("--entity-type", "brokers", "--entity-default")
    return of_cluster(facts, "kafka-configs.sh", "--alter", *entity, "--add-config", joined(settings))


def remake(facts: Facts, brokers: int, *options: str) -> tuple[str, tuple[str, ...]]:
    """Return how our topics are made anew, in words and as lines; on so many brokers if they are ours to start.

    No update is lost: the publisher sees that they are other topics and sends the store's updates again, and every
    reader starts over (docs/protocol.md section 3). The partition map goes with them, because it says how many
    partitions there are; while the publisher runs it would make the old one again.
    """
    if facts.started:
        words = "stop `diem up`, remove `kafka` in its state directory and start it so; the store has every update"
        return words, (shlex.join(("diem", "up", "--mode", "x", "--brokers", str(brokers), *options)),)
    away = (of_cluster(facts, "kafka-topics.sh", "--delete", "--topic", name) for name in facts.ours)
    words = "stop the Data Service, make the topics anew and start it; the store has every update"
    return words, (*away, make_topics(facts, *options))


def make_topics(facts: Facts, *options: str) -> str:
    """Return the line of ours that makes the topics; security options come from the environment."""
    prefix = facts.updates.removesuffix("updates")
    where = () if facts.started else ("--bootstrap-servers", facts.bootstrap_servers)
    named = () if prefix == "diem." else ("--topic-prefix", prefix)
    return shlex.join(("diem", "topics", *where, *named, *options))


def joined(settings: Mapping[str, str]) -> str:
    """Return settings as the tools take them; a value with commas stands in brackets."""
    return ",".join(f"{key}=[{value}]" if "," in value else f"{key}={value}" for key, value in settings.items())
