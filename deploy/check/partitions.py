"""Rules of the number of partitions (thesis, section 5: equations 6, 7, 8, 10 and 11)."""

from typing import Final

from deploy.check.counts import better_counts, graded, imbalance, replication_delay_s, unavailable_s
from deploy.check.facts import Facts, amount, replicas_of
from deploy.check.rule import Judgement, Rule, fault, ok, warning
from deploy.check.tools import remake

LONGEST_ELECTIONS_S: Final = 10.0
"""Half of what everybody may lag after a broker is lost (20 s); the rest is for noticing it."""
LONGEST_REPLICATION_S: Final = 0.1
"""A fraction of a second is not seen by a person who waits for an update."""


def enough(facts: Facts) -> Judgement:
    """P >= n for every planned size (equation 6): a key stays where it is only if the count need never grow."""
    count, idle = len(facts.topic.partitions), [n for n in facts.planned if n > len(facts.topic.partitions)]
    largest = max(facts.planned)
    if not idle:
        return ok(f"{count} for up to {largest} servers")
    found = f"{count}: of {largest} servers {largest - count} get none"
    return fault(found, *_instead(facts, count))


def even(facts: Facts) -> Judgement:
    """P = 0 mod n (equation 8), graded by ceil(P/n) n/P for the sizes that do not divide it."""
    count = len(facts.topic.partitions)
    shares = {n: imbalance(count, n) for n in facts.planned if n <= count}
    evenly = [n for n, share in shares.items() if share == 1]
    uneven = {n: share for n, share in shares.items() if share > 1}
    said = f"{count} among {_listed(evenly)}: even"
    if not uneven:
        return ok(said)
    found = f"{said}; " + ", ".join(f"{n}: the busiest has {share:.2f} x the mean" for n, share in uneven.items())
    return warning(found, *_instead(facts, count))


def not_too_many(facts: Facts) -> Judgement:
    """Elections after a lost broker (equation 11) and replication (equation 10) with all partitions of the cluster."""
    every = [part for topic in facts.cluster.topics.values() for part in topic.partitions.values()]
    brokers = max(len(facts.cluster.brokers), 1)
    held = sum(len(part.replicas) for part in every)
    led = -(-len(every) // brokers)
    away, delay = unavailable_s(led), replication_delay_s(len(every), held / max(len(every), 1), brokers)
    found = (
        f"{held} replicas on {amount(brokers, 'broker')}, {led} led by each: "
        f"{away:.2f} s of elections when one is lost, {1000 * delay:.1f} ms of replication"
    )
    if away <= LONGEST_ELECTIONS_S and delay <= LONGEST_REPLICATION_S:
        return ok(found)
    return warning(found, "fewer partitions in all topics together, or more brokers")


def replicas_even(facts: Facts) -> Judgement | None:
    """P r = 0 mod n (equation 7) with the brokers there are: each holds as many replicas as the others."""
    brokers, count, replicas = len(facts.cluster.brokers), len(facts.topic.partitions), replicas_of(facts.topic)
    if brokers < 2:
        return None
    found = f"{count} x {replicas} replicas on {amount(brokers, 'broker')}"
    if count * replicas % brokers == 0:
        return ok(found)
    return warning(
        f"{found}: some hold more than others",
        f"a number of partitions that {brokers} divides, {_multiple(count, brokers)} for one",
    )


def _multiple(count: int, brokers: int) -> int:
    return -(-count // brokers) * brokers


def _instead(facts: Facts, count: int) -> tuple[str, ...]:
    better = better_counts(count, facts.planned)
    if not better:
        return ("no larger count that is worth it shares more evenly",)
    grades = ", ".join(f"{p} ({graded(p, facts.planned):.2f})" for p in better)
    words, lines = remake(facts, len(facts.started), "--partitions", str(better[-1]))
    return f"mean imbalance now {graded(count, facts.planned):.2f}; better: {grades}; {words}", *lines


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"


RULES: Final = (
    Rule("enough partitions", "the count never has to change, which moves keys", "thesis 7.2, eq. 6", enough),
    Rule("even shares", "no server has more to do than the others", "thesis 7.2, eq. 8", even),
    Rule("even replicas", "no broker stores more than the others", "thesis 5.2, eq. 7", replicas_even),
    Rule("not too many", "a lost broker is replaced soon", "thesis 7.2, eq. 10, 11", not_too_many),
)
