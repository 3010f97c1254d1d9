"""Rules of the updates topic as a log: it keeps the last record of every key, and little else (protocol, section 3)."""

from typing import Final

from deploy.check.facts import Facts
from deploy.check.rule import Judgement, Rule, fault, ok, warning
from deploy.check.safety import MIN_IN_SYNC, UNCLEAN
from deploy.check.tools import set_topic

POLICY: Final = "cleanup.policy"
SIZE: Final = "max.message.bytes"
PACE: Final = ("segment.ms", "segment.bytes", "max.compaction.lag.ms", "min.cleanable.dirty.ratio")
"""Settings that may be smaller than ours: they say how long superseded records stay at most."""
_JUDGED_ELSEWHERE: Final = frozenset({POLICY, SIZE, MIN_IN_SYNC, UNCLEAN, *PACE})


def policy(facts: Facts) -> Judgement:
    """cleanup.policy=compact alone: with `delete` a quiet endpoint loses its only copy."""
    value, wanted = facts.of_topic(facts.updates, POLICY), facts.wanted[POLICY]
    if value == wanted:
        return ok(value)
    deletes = "delete" in value.split(",")
    loss = "an endpoint that is quiet for long loses its only copy" if deletes else "superseded records stay for ever"
    return fault(f"{value}: {loss}", "", set_topic(facts, facts.updates, {POLICY: wanted}))


def cleaner(facts: Facts) -> Judgement | None:
    """log.cleaner.enable=true, or nothing is ever compacted; versions of Kafka that always clean do not have it."""
    key = "log.cleaner.enable"
    wrong = [str(number) for number, settings in facts.brokers.items() if settings.get(key, "true") == "false"]
    if not facts.brokers:
        return None
    if not wrong:
        return ok("on")
    return fault(f"off at broker {', '.join(wrong)}", "in server.properties, then restart", f"{key}=true")


def pace(facts: Facts) -> Judgement:
    """Segments close and are compacted soon: what a new reader has to read stays near one record an endpoint."""
    wrong = {}
    for key in PACE:
        value = facts.of_topic(facts.updates, key)
        if float(value) > float(facts.wanted[key]):
            wrong[key] = value
    if not wrong:
        return ok(f"{', '.join(PACE)} within ours")
    found = ", ".join(f"{key} {value}" for key, value in wrong.items())
    change = set_topic(facts, facts.updates, {key: facts.wanted[key] for key in wrong})
    return warning(f"{found}: a server that starts reads more", "", change)


def size(facts: Facts) -> Judgement:
    """max.message.bytes takes every batch of the producer, and not much more."""
    value, batch = int(facts.of_topic(facts.updates, SIZE)), facts.producer.get("max_batch_size")
    wanted = facts.wanted[SIZE]
    change = set_topic(facts, facts.updates, {SIZE: wanted})
    if isinstance(batch, int) and value < batch:
        return fault(f"{value}: the producer sends batches of up to {batch} bytes", "", change)
    if value > int(wanted):
        return warning(f"{value}: foreign records may be larger than ours ever are", "", change)
    return ok(str(value))


def others(facts: Facts) -> Judgement:
    """What else this system sets when it makes the topic."""
    wanted = {key: value for key, value in facts.wanted.items() if key not in _JUDGED_ELSEWHERE}
    wrong = {key: facts.of_topic(facts.updates, key) for key in wanted}
    wrong = {key: value for key, value in wrong.items() if value != wanted[key]}
    if not wrong:
        return ok(", ".join(f"{key} {value}" for key, value in wanted.items()) or "nothing")
    found = ", ".join(f"{key} {value}" for key, value in wrong.items())
    return warning(found, "", set_topic(facts, facts.updates, {key: wanted[key] for key in wrong}))


RULES: Final = (
    Rule("cleanup policy", "the last update of every endpoint stays", "protocol 3, thesis 4.5", policy),
    Rule("cleaner", "superseded updates go", "thesis 4.5", cleaner),
    Rule("compaction pace", "a server that starts is ready soon", "protocol 3, thesis 4.5", pace),
    Rule("record size", "every update fits, and nothing huge does", "protocol 3", size),
    Rule("other settings", "the topic is as it is tested", "protocol 3", others),
)
