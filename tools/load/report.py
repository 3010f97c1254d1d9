"""The result of a load test as text; it claims only checked facts."""

import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import urlsplit

from deploy.terminal import amount, data_size
from diem.process.listeners import is_loopback
from tools.load.completeness import MAX_EXAMPLES, Difference
from tools.load.result import BUSY_SHARE, LATE_S, QUANTILES, LoadResult, Written

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
_CAUSES: Final = {
    os.strerror(errno.EADDRNOTAVAIL).lower(): (
        "no client port was left on this machine: an address has some 28,000 to one server",
        "(net.ipv4.ip_local_port_range); connect --from several addresses, or from more machines",
    ),
    os.strerror(errno.EMFILE).lower(): (
        "this tool may open no more files: raise the limit (`ulimit -n`), or use more --processes",
    ),
    "timed out": (
        "timed out: a server did not answer in time, or its queue of new connections was full; connect more",
        "slowly (--rate), or see whether the servers, or the machine, are at their limit (`diem top`)",
    ),
}
"""What the system's words mean here."""


def lines(outcome: LoadResult) -> Iterator[str]:
    """Yield the result as text."""
    yield _row("load", _load(outcome))
    yield _row("clients", _clients(outcome))
    yield from _reasons("refused", outcome.refused)
    for words, remedies in _CAUSES.items():
        if any(words in reason for reason in (*outcome.refused, *outcome.interruptions)):
            yield from (_INDENT + line for line in remedies)
    if any("429" in reason for reason in outcome.refused):
        yield _INDENT + "429: the servers limit the clients of one address (`diem up --clients-per-address N`)"
        yield _INDENT + "and, with tokens, of one user; other addresses have limits of their own"
    yield from _reasons("rejected", outcome.rejected)
    for code, remedy in _REMEDIES.items():
        if any(reason.startswith(f"{code}:") for reason in outcome.rejected):
            yield _INDENT + f"{code}: {remedy}"
    yield from _reasons("interrupted", outcome.interruptions)
    if outcome.measured_s:
        yield from _measured(outcome)
    yield _row("missed", _missed(outcome))
    if outcome.completeness is not None:
        for each in [*outcome.completeness.examples, *outcome.completeness.ahead[:MAX_EXAMPLES]]:
            yield _INDENT + _example(each)
    for problem in outcome.problems:
        yield _row("problem", problem)


def warnings(outcome: LoadResult) -> Iterator[str]:
    """Yield the doubts about the figures, as sentences."""
    if outcome.is_bottleneck:
        yield (
            f"this tool was the bottleneck ({_tool(outcome)}; above {BUSY_SHARE:.0%} or {1000 * LATE_S:.0f} ms the "
            "delays include its own): use fewer clients or subscriptions, or more --processes or machines"
        )
    if abs(outcome.clock_difference_s) >= CLOCKS_S:
        ahead = "ahead of" if outcome.clock_difference_s > 0 else "behind"
        yield (
            f"the clock of {outcome.base} is at least {abs(outcome.clock_difference_s):.1f} s {ahead} this one: "
            "delays are wrong by as much"
        )
    elif outcome.delays.early:
        early = amount(outcome.delays.early, "update")
        yield f"{early} arrived before the time at which they were published, by this clock: the clocks differ"


def _load(outcome: LoadResult) -> str:
    each = min(outcome.subscriptions, outcome.endpoints)
    processes = f", from {outcome.processes:,} processes" if outcome.processes > 1 else ""
    return (
        f"{amount(outcome.clients, 'client')} with {each} of {amount(outcome.endpoints, 'endpoint')} each, "
        f"at {outcome.base}, through {amount(outcome.urls, 'URL')}{processes}"
    )


def _clients(outcome: LoadResult) -> str:
    total = outcome.clients
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


def _measured(outcome: LoadResult) -> Iterator[str]:
    seconds = outcome.measured_s
    yield _row(
        "updates",
        f"{outcome.updates:,} received in {seconds:.1f} s, {outcome.updates / seconds:,.1f}/s; "
        f"{data_size(outcome.bytes)} of messages, {data_size(outcome.bytes / seconds)}/s",
    )
    if outcome.written is not None:
        yield from _written(outcome.written)
    delays = outcome.delays
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


def _written(writer: Written) -> Iterator[str]:
    rate = writer.accepted / writer.seconds if writer.seconds else 0.0
    yield _row("written", f"{writer.accepted:,} updates accepted, {rate:,.1f}/s of {writer.wanted:,.1f}/s")
    yield from _reasons("not written", writer.failed)


def _tool(outcome: LoadResult) -> str:
    return f"{outcome.cpu_share:.0%} of a core, its event loop was at most {1000 * outcome.loop_lag_s:.0f} ms late"


def _missed(outcome: LoadResult) -> str:
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
        text = f"{found.missed:,} of {checked} are behind the catalogue after {outcome.wait_s:.0f} s{offline}"
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
