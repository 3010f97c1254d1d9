"""The result of a load test as text and as JSON; it claims only checked facts."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from deploy.terminal import amount, data_size
from diem.process.listeners import is_loopback
from tools.load.completeness import MAX_EXAMPLES, Difference
from tools.load.run import BUSY_SHARE, LATE_S, LoadRun

QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
CLOCKS_S: Final = 1.0
"""Clock difference worth a warning."""
MAX_REASONS: Final = 5
"""Maximum number of reasons in the text, the most frequent first."""
_INDENT: Final = " " * 14
_REMEDIES: Final = {
    "limit": "fewer --subscriptions, or more for each client (DIEM_WEBSOCKET_SUBSCRIPTIONS, DIEM_PROXY_SUBSCRIPTIONS)",
    "forbidden": "name endpoints that the key or token covers (--endpoints), or another one (--key-file, --token-file)",
}
"""Remedies for rejected endpoints, by the code of the reason."""


def lines(outcome: LoadRun) -> Iterator[str]:
    """Yield the result as text."""
    received = outcome.received
    yield _row("load", _load(outcome))
    yield _row("clients", _clients(outcome))
    yield from _reasons("refused", received.refused.counts)
    if any("429" in reason for reason in received.refused.counts):
        yield _INDENT + "429: the servers limit the clients of one address (`diem up --clients-per-address N`)"
        yield _INDENT + "and, with tokens, of one user; other addresses have limits of their own"
    yield from _reasons("rejected", received.rejected.counts)
    for code, remedy in _REMEDIES.items():
        if any(reason.startswith(f"{code}:") for reason in received.rejected.counts):
            yield _INDENT + f"{code}: {remedy}"
    yield from _reasons("interrupted", received.interrupted.counts)
    if outcome.measured_s:
        yield from _measured(outcome)
    yield _row("missed", _missed(outcome))
    if outcome.completeness is not None:
        for each in [*outcome.completeness.examples, *outcome.completeness.ahead[:MAX_EXAMPLES]]:
            yield _INDENT + _example(each)
    for problem in outcome.problems:
        yield _row("problem", problem)


def warnings(outcome: LoadRun) -> Iterator[str]:
    """Yield the doubts about the figures, as sentences."""
    if outcome.measured_s and outcome.is_bottleneck:
        yield (
            f"this tool was the bottleneck ({_tool(outcome)}; above {BUSY_SHARE:.0%} or {1000 * LATE_S:.0f} ms the "
            "delays include its own): use fewer clients or subscriptions, or share them among several machines"
        )
    if abs(outcome.clock_difference_s) >= CLOCKS_S:
        ahead = "ahead of" if outcome.clock_difference_s > 0 else "behind"
        yield (
            f"the clock of {outcome.base} is at least {abs(outcome.clock_difference_s):.1f} s {ahead} this one: "
            "delays are wrong by as much"
        )
    elif outcome.received.delays.early:
        early = amount(outcome.received.delays.early, "update")
        yield f"{early} arrived before the time at which they were published, by this clock: the clocks differ"


def _load(outcome: LoadRun) -> str:
    options, edges = outcome.options, outcome.edges
    each = min(options.subscriptions, outcome.endpoints)
    return (
        f"{amount(options.clients, 'client')} with {each} of {amount(outcome.endpoints, 'endpoint')} each, "
        f"at {outcome.base}, through {amount(len(edges.servers), 'URL')}"
    )


def _clients(outcome: LoadRun) -> str:
    total = len(outcome.clients)
    if outcome.subscribed == total:
        return "all connected and subscribed"
    return f"{outcome.subscribed:,} connected and subscribed, {total - outcome.subscribed:,} never"


def _reasons(label: str, counts: Mapping[str, int]) -> Iterator[str]:
    if not counts:
        return
    ordered = sorted(counts.items(), key=lambda each: -each[1])
    more = f", {amount(len(ordered) - MAX_REASONS, 'more reason')}" if len(ordered) > MAX_REASONS else ""
    yield _row(label, f"{sum(counts.values()):,} times: {_texts(ordered[:MAX_REASONS])}{more}")


def _texts(counts: Iterable[tuple[str, int]]) -> str:
    return "; ".join(f"{reason} ({number:,})" for reason, number in counts)


def _measured(outcome: LoadRun) -> Iterator[str]:
    received, seconds = outcome.received, outcome.measured_s
    yield _row(
        "updates",
        f"{received.updates:,} received in {seconds:.1f} s, {received.updates / seconds:,.1f}/s; "
        f"{data_size(outcome.received_bytes)} of messages, {data_size(outcome.received_bytes / seconds)}/s",
    )
    writer = outcome.writer
    if writer is not None:
        rate = writer.accepted / writer.seconds if writer.seconds else 0.0
        yield _row("written", f"{writer.accepted:,} updates accepted, {rate:,.1f}/s of {outcome.options.write:,.1f}/s")
        yield from _reasons("not written", writer.failed)
    delays = received.delays
    if delays.count:
        quantiles = ", ".join(f"{name} {delays.quantile(share):,.1f} ms" for name, share in QUANTILES.items())
        yield _row("delay", f"{quantiles}, max {delays.max_ms:,.1f} ms")
        yield from (_INDENT + line for line in delays.lines())
        yield _INDENT + "from the time at which the Data Service published the update (in its version, whole ms)"
        yield (
            _INDENT
            + "until this tool had it"
            + ("" if _is_local(outcome.base) else "; the clocks of both machines must agree")
        )
    yield _row("this tool", _tool(outcome))


def _tool(outcome: LoadRun) -> str:
    return f"{outcome.cpu_share:.0%} of a core, its event loop was at most {1000 * outcome.loop_lag_s:.0f} ms late"


def _missed(outcome: LoadRun) -> str:
    found = outcome.completeness
    if found is None:
        if outcome.interrupted:
            return "not checked: interrupted"
        # Clients subscribed, but the catalogue could not be read.
        why = outcome.problems[0] if outcome.problems and outcome.subscribed else "no client subscribed"
        return f"not checked: {why}"
    checked = amount(found.checked, "subscription")
    if found.missed:
        offline = f", {found.unconnected:,} of them of clients without a connection" if found.unconnected else ""
        text = f"{found.missed:,} of {checked} are behind the catalogue after {outcome.options.wait_s:.0f} s{offline}"
    elif found.checked:
        text = f"nothing: {checked} checked, each has the version that the catalogue had at the end, or a later one"
    else:
        text = "nothing was checked"
    more = {
        "have a version that the catalogue does not have": len(found.ahead),
        "were told to fetch the data (resync)": found.resynced,
        "not checked, never subscribed": found.unsubscribed,
        "not checked, no longer in the catalogue": found.removed,
    }
    return "; ".join([text, *(f"{number:,} {what}" for what, number in more.items() if number)])


def _example(found: Difference) -> str:
    has = "nothing" if found.version is None else f"version {found.version}"
    return f"client {found.client}: {found.endpoint} is at version {found.current}, it has {has}"


def _row(label: str, text: str) -> str:
    return f"{label:<{len(_INDENT)}}{text}"


def _is_local(base: str) -> bool:
    return is_loopback(urlsplit(base).hostname or "")


def as_json(outcome: LoadRun) -> dict[str, Any]:
    """Return the result as a JSON object."""
    received, options, found = outcome.received, outcome.options, outcome.completeness
    return {
        "base": outcome.base,
        "passed": outcome.passed,
        "interrupted": outcome.interrupted,
        "partitioned": bool(outcome.edges.metadata),
        "clients": {"wanted": options.clients, "subscribed": outcome.subscribed},
        "subscriptions": options.subscriptions,
        "endpoints": outcome.endpoints,
        "refused": dict(received.refused.counts),
        "rejected": dict(received.rejected.counts),
        "interruptions": dict(received.interrupted.counts),
        "measured_s": round(outcome.measured_s, 3),
        "updates": received.updates,
        "bytes": outcome.received_bytes,
        "written": None if outcome.writer is None else _written(outcome),
        "delay_ms": {
            "count": received.delays.count,
            **{name: _rounded(received.delays.quantile(share)) for name, share in QUANTILES.items()},
            "max": _rounded(received.delays.max_ms) if received.delays.count else None,
            "before_publication": received.delays.early,
            "histogram": [[low, high, number] for low, high, number in received.delays.doublings()],
        },
        "clock_difference_s": round(outcome.clock_difference_s, 3),
        "missed": None
        if found is None
        else {
            "checked": found.checked,
            "missed": found.missed,
            "unconnected": found.unconnected,
            "resynced": found.resynced,
            "unsubscribed": found.unsubscribed,
            "removed": found.removed,
            "ahead": len(found.ahead),
            "examples": [each._asdict() for each in [*found.examples, *found.ahead[:MAX_EXAMPLES]]],
        },
        "tool": {
            "cpu_share": round(outcome.cpu_share, 3),
            "loop_lag_s": round(outcome.loop_lag_s, 3),
            "bottleneck": bool(outcome.measured_s) and outcome.is_bottleneck,
        },
        "problems": outcome.problems,
    }


def _written(outcome: LoadRun) -> dict[str, Any]:
    writer = outcome.writer
    if writer is None:
        return {}
    return {"accepted": writer.accepted, "seconds": round(writer.seconds, 3), "failed": dict(writer.failed)}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
