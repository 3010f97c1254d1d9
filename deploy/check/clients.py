"""Rules of our own producer and consumers: what the code uses, judged like any other configuration."""

from typing import Final

from deploy.check.facts import Facts
from deploy.check.rule import Judgement, Rule, fault, ok, warning

_IN_CODE: Final = "in the code; this is no setting"


def acks(facts: Facts) -> Judgement:
    """acks=all: an acknowledgement counts min.insync.replicas. aiokafka's own default is 1."""
    value = facts.producer.get("acks", 1)
    return ok("all") if value in {"all", -1} else fault(f"acks={value}", f"acks=all {_IN_CODE}")


def order(facts: Facts) -> Judgement:
    """enable.idempotence: a repeated batch neither doubles nor overtakes."""
    value = facts.producer.get("enable_idempotence", False)
    return ok("idempotent") if value is True else fault("not idempotent", f"enable_idempotence=True {_IN_CODE}")


def patience(facts: Facts) -> Judgement:
    """A send outlives the change of leaders: the brokers' session twice over (the election and the first retry)."""
    value = facts.producer.get("request_timeout_ms", 40_000)
    session = max(int(text) for text in facts.of_brokers("broker.session.timeout.ms").values())
    found = f"sends wait {value} ms, a lost broker is noticed after {session} ms"
    if isinstance(value, int) and value >= 2 * session:
        return ok(found)
    return warning(f"{found}: sends fail meanwhile, and are repeated", "in server.properties; the default is", _SESSION)


def commits(facts: Facts) -> Judgement:
    """No automatic commits: ours are marks of progress for lag tools, made after the work, and start nothing."""
    value = facts.consumer.get("enable_auto_commit", True)
    found = "by hand, after the batch was handed on; marks of progress, no start positions"
    return ok(found) if value is False else fault("automatic", f"enable_auto_commit=False {_IN_CODE}")


def start(facts: Facts) -> Judgement:
    """A bridge begins where its server asks, else at the log's start; `latest` would pass over updates."""
    value = facts.consumer.get("auto_offset_reset", "latest")
    return ok(str(value)) if value in {"earliest", "none"} else fault(str(value), f"earliest {_IN_CODE}")


_SESSION: Final = "broker.session.timeout.ms=9000"

RULES: Final = (
    Rule("acks", "an update counts when N + 1 brokers have it", "thesis 7.2, 4.6", acks),
    Rule("idempotence", "updates of an endpoint stay in order", "thesis 7.2, 4.10", order),
    Rule("patience", "a lost broker is no error of a send", "reliability 5.2", patience),
    Rule("commits", "nothing counts as read before it is", "thesis 7.2, 4.10", commits),
    Rule("start", "a new reader misses nothing", "protocol 3", start),
)
