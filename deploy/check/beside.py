"""The rule of the topics beside the updates: hot updates and the partition map are as safe (protocol, section 3)."""

from collections.abc import Iterator
from typing import Final

from deploy.check.facts import Facts, amount, replicas_of
from deploy.check.log import POLICY, SIZE
from deploy.check.rule import Judgement, Rule, fault, ok
from deploy.check.safety import MIN_IN_SYNC, UNCLEAN
from deploy.check.tools import make_topics, of_cluster, set_topic

_EXACTLY: Final = (POLICY, UNCLEAN)
_AT_LEAST: Final = (MIN_IN_SYNC, SIZE)


def others(facts: Facts) -> Judgement:
    """The topics of hot updates and of the partition map: one partition, and as safe as the updates."""
    replicas, there = replicas_of(facts.topic), [name for name in facts.beside if name in facts.cluster.topics]
    if missing := [name for name in facts.beside if name not in there]:
        found = f"there is no topic {' and no '.join(missing)}, or this user may not see it"
        return fault(found, "start the publisher, which makes it, or make it now", make_topics(facts))
    wrong, lines = [], []
    for name in there:
        topic = facts.cluster.topics[name]
        if len(topic.partitions) != 1 or replicas_of(topic) < replicas:
            sizes = f"{amount(len(topic.partitions), 'partition')}, {amount(replicas_of(topic), 'replica')}"
            wrong.append(f"{name} has {sizes}, it needs 1 and {replicas}")
            lines.append(of_cluster(facts, "kafka-topics.sh", "--delete", "--topic", name))
        elif settings := dict(_wrong(facts, name)):
            wrong.append(f"{name}: " + ", ".join(f"{key} {facts.of_topic(name, key)}" for key in settings))
            lines.append(set_topic(facts, name, settings))
    if not wrong:
        return ok(f"{', '.join(there)}: as safe as the updates")
    return fault("; ".join(wrong), "what is deleted while the Data Service runs is made again as it was", *lines)


def _wrong(facts: Facts, name: str) -> Iterator[tuple[str, str]]:
    """The settings of a topic that lose or refuse records, with what they must be."""
    for key in _EXACTLY:
        if facts.of_topic(name, key) != facts.wanted[key]:
            yield key, facts.wanted[key]
    for key in _AT_LEAST:
        if int(facts.of_topic(name, key)) < int(facts.wanted[key]):
            yield key, facts.wanted[key]


RULES: Final = (Rule("hot and map", "hot updates and the partition map stay", "protocol 3", others),)
