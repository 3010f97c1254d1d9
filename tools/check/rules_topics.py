"""Rules of our topics: log settings (docs/internals.md section 3) and the number of partitions (thesis, section 5).

The equations are ``learning.sizing``'s. All partitions are assumed equally busy.
"""

from collections.abc import Iterator
from typing import Final

from deploy.terminal import amount
from diem.kafka.topic_config import LOG_APPEND_TIME, TIMESTAMP_TYPE
from learning.sizing.even import choose_count, imbalance, mean_imbalance
from learning.sizing.kafka import (
    ELECTION_S,
    IDLE_REPLICATION_S,
    QUORUM_METADATA_S,
    REPLICATION_S,
    SESSION_TIMEOUT_S,
    detection_s,
    partitions_by_servers,
    replication_delay_s,
    shares_replicas,
    unavailability_s,
)
from tools.check.facts import Facts, Judgement, Rule, fault, ok, replicas_of, warning
from tools.check.rules_cluster import MIN_IN_SYNC, UNCLEAN
from tools.check.tools import cluster_line, create_topics_line, recreate_topics, set_topic_line

POLICY: Final = "cleanup.policy"
SIZE: Final = "max.message.bytes"
PACE: Final = ("segment.ms", "segment.bytes", "max.compaction.lag.ms", "min.cleanable.dirty.ratio")
"""Settings that may be lower than ours: bounds on the age of superseded records."""
_JUDGED_ELSEWHERE: Final = frozenset({POLICY, SIZE, TIMESTAMP_TYPE, MIN_IN_SYNC, UNCLEAN, *PACE})


def cleanup_policy(facts: Facts) -> Judgement:
    """cleanup.policy=compact alone: with ``delete`` a quiet endpoint loses its only copy."""
    value, wanted = facts.of_topic(facts.updates, POLICY), facts.wanted[POLICY]
    if value == wanted:
        return ok(value)
    deletes = "delete" in value.split(",")
    loss = "an endpoint without updates loses its only copy" if deletes else "superseded records stay forever"
    return fault(f"{value}: {loss}", "", set_topic_line(facts, facts.updates, {POLICY: wanted}))


def cleaner(facts: Facts) -> Judgement | None:
    """log.cleaner.enable=true, or nothing is compacted; versions of Kafka that always compact lack the setting."""
    key = "log.cleaner.enable"
    wrong = [str(number) for number, settings in facts.brokers.items() if settings.get(key, "true") == "false"]
    if not facts.brokers:
        return None
    if not wrong:
        return ok("on")
    return fault(f"off at broker {', '.join(wrong)}", "in server.properties, then restart", f"{key}=true")


def compaction_pace(facts: Facts) -> Judgement:
    """Segments are closed and compacted soon, so that new readers read little more than one record per endpoint."""
    wrong = {}
    for key in PACE:
        value = facts.of_topic(facts.updates, key)
        if float(value) > float(facts.wanted[key]):
            wrong[key] = value
    if not wrong:
        return ok(f"{', '.join(PACE)} within DIEM's own settings")
    found = ", ".join(f"{key} {value}" for key, value in wrong.items())
    change = set_topic_line(facts, facts.updates, {key: facts.wanted[key] for key in wrong})
    return warning(f"{found}: a starting server reads more", "", change)


def record_size(facts: Facts) -> Judgement:
    """max.message.bytes admits every batch of the producer, and not much more."""
    value, batch = int(facts.of_topic(facts.updates, SIZE)), facts.producer.get("max_batch_size")
    wanted = facts.wanted[SIZE]
    change = set_topic_line(facts, facts.updates, {SIZE: wanted})
    if isinstance(batch, int) and value < batch:
        return fault(f"{value}: the producer sends batches of up to {batch} bytes", "", change)
    if value > int(wanted):
        return warning(f"{value}: larger than any record of DIEM", "", change)
    return ok(str(value))


def other_settings(facts: Facts) -> Judgement:
    """The other settings with which this system creates the topic."""
    wanted = {key: value for key, value in facts.wanted.items() if key not in _JUDGED_ELSEWHERE}
    wrong = {key: facts.of_topic(facts.updates, key) for key in wanted}
    wrong = {key: value for key, value in wrong.items() if value != wanted[key]}
    if not wrong:
        return ok(", ".join(f"{key} {value}" for key, value in wanted.items()) or "nothing")
    found = ", ".join(f"{key} {value}" for key, value in wrong.items())
    return warning(found, "", set_topic_line(facts, facts.updates, {key: wanted[key] for key in wrong}))


LOG: Final = (
    Rule("cleanup policy", "the latest update of every endpoint is kept", "internals 3, thesis 4.5", cleanup_policy),
    Rule("cleaner", "superseded updates are removed", "thesis 4.5", cleaner),
    Rule("compaction pace", "a starting server is ready soon", "internals 3, thesis 4.5", compaction_pace),
    Rule("record size", "every update fits, and nothing much larger", "internals 3", record_size),
    Rule("other settings", "the topic has the tested settings", "internals 3", other_settings),
)


_EQUAL_SETTINGS: Final = (POLICY, UNCLEAN)
_MINIMUM_SETTINGS: Final = (MIN_IN_SYNC, SIZE)


def side_topics(facts: Facts) -> Judgement:
    """The topics of hot updates and of the partition map: one partition, and as safe as the updates."""
    replicas, there = replicas_of(facts.topic), [name for name in facts.side_topics if name in facts.cluster.topics]
    if missing := [name for name in facts.side_topics if name not in there]:
        found = f"missing, or hidden from this user: {', '.join(missing)}"
        return fault(found, "start the Data Service, which creates it, or create it now", create_topics_line(facts))
    wrong, lines = [], []
    for name in there:
        topic = facts.cluster.topics[name]
        if len(topic.partitions) != 1 or replicas_of(topic) < replicas:
            sizes = f"{amount(len(topic.partitions), 'partition')}, {amount(replicas_of(topic), 'replica')}"
            wrong.append(f"{name} has {sizes}, and needs 1 and {replicas}")
            lines.append(cluster_line(facts, "kafka-topics.sh", "--delete", "--topic", name))
        elif settings := dict(_wrong_settings(facts, name)):
            wrong.append(f"{name}: " + ", ".join(f"{key} {facts.of_topic(name, key)}" for key in settings))
            lines.append(set_topic_line(facts, name, settings))
    if not wrong:
        return ok(f"{', '.join(there)}: as safe as the updates")
    return fault(
        "; ".join(wrong), "the Data Service must be stopped: while it runs, it creates deleted topics again", *lines
    )


def _wrong_settings(facts: Facts, name: str) -> Iterator[tuple[str, str]]:
    """Yield the settings of a topic that lose or refuse records, with the required values."""
    for key in _EQUAL_SETTINGS:
        if facts.of_topic(name, key) != facts.wanted[key]:
            yield key, facts.wanted[key]
    for key in _MINIMUM_SETTINGS:
        if int(facts.of_topic(name, key)) < int(facts.wanted[key]):
            yield key, facts.wanted[key]


def record_times(facts: Facts) -> Judgement:
    """message.timestamp.type=LogAppendTime, so that no clock but the brokers' decides what is accepted or deleted."""
    names = [name for name in (*facts.ours, facts.traffic) if name in facts.cluster.topics]
    wrong = [name for name in names if facts.of_topic(name, TIMESTAMP_TYPE) != LOG_APPEND_TIME]
    if not wrong:
        return ok("set by the brokers")
    found = f"set by writers: {', '.join(wrong)}: with a clock that is an hour ahead, nothing can be written"
    lines = (set_topic_line(facts, name, {TIMESTAMP_TYPE: LOG_APPEND_TIME}) for name in wrong)
    return warning(found, "", *lines)


SIDE_TOPICS: Final = (
    Rule("hot and map", "hot updates and the partition map are kept", "internals 3", side_topics),
    Rule("record times", "a wrong clock does not stop updates", "internals 3", record_times),
)


MAX_UNAVAILABILITY_S: Final = 20.0
"""From the loss of a broker until all of its partitions are led again: T_heal of docs/reliability.md."""
_SESSION_TIMEOUT: Final = "broker.session.timeout.ms"
MAX_REPLICATION_S: Final = 0.1
"""Not noticeable to a person waiting for an update."""


def enough_partitions(facts: Facts) -> Judgement:
    """P >= n for every planned size (equation 6): keys keep their partitions only while the count is unchanged."""
    count, largest = len(facts.topic.partitions), max(facts.planned)
    if partitions_by_servers(largest).holds(count):
        return ok(f"{count} for up to {largest} servers")
    found = f"{count}: of {largest} servers {largest - count} get no partition"
    return fault(found, *_suggest(facts, count))


def even_shares(facts: Facts) -> Judgement:
    """P = 0 mod n (equation 8), graded by ceil(P/n) n/P for the sizes that do not divide it."""
    count = len(facts.topic.partitions)
    shares = {n: imbalance(count, n) for n in facts.planned if n <= count}
    evenly = [n for n, share in shares.items() if share == 1]
    uneven = {n: share for n, share in shares.items() if share > 1}
    text = f"{count} among {_join_numbers(evenly)}: even"
    if not uneven:
        return ok(text)
    found = f"{text}; " + ", ".join(f"{n}: the busiest has {share:.2f} x the mean" for n, share in uneven.items())
    return warning(found, *_suggest(facts, count))


def bounded_partitions(facts: Facts) -> Judgement:
    """Detection and elections after a lost broker (equation 11), and replication (equation 10), of all partitions."""
    every = [part for topic in facts.cluster.topics.values() for part in topic.partitions.values()]
    brokers = max(len(facts.cluster.brokers), 1)
    held = sum(len(part.replicas) for part in every)
    replicas, led = held / max(len(every), 1), -(-len(every) // brokers)
    # For the broker with the most leaders, as if all had as many.
    elections = unavailability_s(led * brokers, brokers, replicas, ELECTION_S, QUORUM_METADATA_S)
    shown = [int(value) for each in facts.brokers.values() if (value := each.get(_SESSION_TIMEOUT))]
    detection = detection_s(max(shown) / 1000 if shown else SESSION_TIMEOUT_S)
    ours = sum(len(facts.cluster.topics[name].partitions) for name in facts.ours)
    delay = replication_delay_s(ours, brokers, replicas, REPLICATION_S)
    delay += replication_delay_s(len(every) - ours, brokers, replicas, IDLE_REPLICATION_S)
    found = (
        f"{held} replicas on {amount(brokers, 'broker')}, {led} led by each: "
        f"when one fails, {float(detection):.1f} s until that is known and {float(elections):.2f} s of elections; "
        f"{float(1000 * delay):.1f} ms of replication"
    )
    late = detection + elections > MAX_UNAVAILABILITY_S
    if not late and delay <= MAX_REPLICATION_S:
        return ok(found)
    if late and detection > elections:
        return warning(found, "at the controllers, then restart them one by one", f"{_SESSION_TIMEOUT}=9000")
    return warning(found, "use fewer partitions over all topics, or more brokers")


def even_replicas(facts: Facts) -> Judgement | None:
    """P r = 0 mod n (equation 7) for the present brokers: each holds as many replicas as the others."""
    brokers, count, replicas = len(facts.cluster.brokers), len(facts.topic.partitions), replicas_of(facts.topic)
    if brokers < 2:
        return None
    found = f"{count} x {replicas} replicas on {amount(brokers, 'broker')}"
    if shares_replicas(count, replicas, brokers):
        return ok(found)
    return warning(
        f"{found}: some hold more than others",
        f"use a multiple of {brokers} partitions, such as {_multiple(count, brokers)}",
    )


def _multiple(count: int, brokers: int) -> int:
    return -(-count // brokers) * brokers


def _suggest(facts: Facts, count: int) -> tuple[str, ...]:
    better = choose_count(facts.planned)
    now, then = mean_imbalance(count, facts.planned), mean_imbalance(better, facts.planned)
    if max(facts.planned) <= count and now <= then:
        return (f"mean imbalance {now:.2f}: no other number is worth it",)
    words, lines = recreate_topics(facts, len(facts.started), "--partitions", str(better))
    return f"mean imbalance now {now:.2f}, with {better} partitions {then:.2f}; {words}", *lines


def _join_numbers(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"


PARTITIONS: Final = (
    Rule(
        "enough partitions",
        "the number never has to change, which would move keys",
        "thesis 7.2, eq. 6",
        enough_partitions,
    ),
    Rule("even shares", "servers have equal work", "thesis 7.2, eq. 8", even_shares),
    Rule("even replicas", "brokers store equal amounts", "thesis 5.2, eq. 7", even_replicas),
    Rule("not too many", "a failed broker is replaced quickly", "thesis 7.2, eq. 10, 11", bounded_partitions),
)
