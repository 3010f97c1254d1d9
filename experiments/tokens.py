"""``make bench-tokens``: what verifying a client token costs, and what happens when the tokens of all clients expire.

Verification, of tokens seen first and known, against PyJWT alone: CPU of one process; each round measures all in turn,
so that a busy machine slows them alike. The floor is the signature alone, as the library computes it.

Expiry: 2,000 clients of three servers behind a Broadcast node replace their tokens of 60 s, which the Data Service
issues, on their open connections; the oracle checks that they miss no update, and CPU is compared with an equally long
time in which no token is replaced. ``QUICK=1``: fewer tokens and rounds; 300 clients with tokens of 20 s.
"""

import asyncio
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jwt

from diem.tokens.verifier import Verifier
from tests.bench.figures import Figure, figure, goal
from tests.bench.report import Report
from tests.load.bench import write
from tests.load.injection import EXPIRY
from tests.load.observe import run
from tests.load.run import end_in_order, told
from tests.load.scenario import Scenario
from tests.support.commandline import parser
from tests.support.size import sized
from tests.support.tokens import Issuer

FIRST, KNOWN, PEER, FLOOR, ISSUE = "seen first", "known", "PyJWT alone", "signature alone", "issued"
FIRST_US, KNOWN_US = 60.0, 2.0
ALGORITHMS = ("EdDSA", "HS256")
EXPIRING = Scenario(
    "x-broadcast",
    servers=3,
    clients=2000,
    # Little else, so that the CPU of the refreshes stands out.
    endpoints=1000,
    rate=50,
    churn_seconds=600,
    seconds=10,
    tokens=True,
    token_seconds=60,
    faults=(EXPIRY,),
)
EXPIRING_QUICK = replace(EXPIRING, clients=300, token_seconds=20, seconds=2, quick=True)
EXPIRING_SMOKE = replace(EXPIRING_QUICK, servers=1, clients=10, endpoints=20, token_seconds=10, seconds=1)


def microseconds(work: Callable[[str], object], tokens: Sequence[str]) -> float:
    """Return the CPU time of one call."""
    began = time.process_time()
    for token in tokens:
        work(token)
    return (time.process_time() - began) * 1e6 / len(tokens)


def works(issuer: Issuer, now: float, tokens: Sequence[str]) -> dict[str, Callable[[str], object]]:
    """Return what is measured, by name."""
    public = issuer.private.public_key() if issuer.algorithm == "EdDSA" else issuer.private
    algorithm = jwt.get_algorithm_by_name(issuer.algorithm)
    # With a cache of no entries every token is seen first.
    first, known = Verifier([issuer.key], max_cached_bytes=0), Verifier([issuer.key])
    parts = {}
    for token in tokens:
        known.verify(token, now)
        message, _, signature = token.rpartition(".")
        parts[token] = (message.encode(), jwt.utils.base64url_decode(signature))
    claims = issuer.claims(now)

    def peer(token: str) -> object:
        return jwt.decode(token, public, [issuer.algorithm], audience="diem", issuer="diem", leeway=30)

    return {
        FIRST: lambda token: first.verify(token, now),
        KNOWN: lambda token: known.verify(token, now),
        PEER: peer,
        FLOOR: lambda token: algorithm.verify(parts[token][0], public, parts[token][1]),
        ISSUE: lambda _: jwt.encode(claims, issuer.private, issuer.algorithm, headers={"kid": issuer.kid}),
    }


def cached_bytes(issuer: Issuer, now: float, tokens: Sequence[str]) -> float:
    """Return the memory of one remembered token."""
    verifier = Verifier([issuer.key])
    verifier.verify(issuer.token(now, sub="loads the library"), now)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for token in tokens:
            verifier.verify(token, now)
        return (tracemalloc.get_traced_memory()[0] - before) / len(tokens)
    finally:
        tracemalloc.stop()


def measure(rounds: int, count: int, report: Report) -> dict[str, Any]:
    """Return the figures of both algorithms, in microseconds and as ratios to PyJWT of the same round."""
    now = time.time()
    found: dict[str, Any] = {}
    for algorithm in ALGORITHMS:
        issuer = Issuer("k", algorithm)  # type: ignore[arg-type]
        tokens = [issuer.token(now, sub=f"user {number}") for number in range(count)]
        measured = works(issuer, now, tokens)
        spent: dict[str, list[float]] = {name: [] for name in measured}
        for number in range(1, rounds + 1):
            report.step(f"{algorithm}, round {number}")
            for name, work in measured.items():
                spent[name].append(microseconds(work, tokens))
        found[algorithm] = {
            "us": {name: figure(values) for name, values in spent.items()},
            "x_pyjwt": _ratio(spent[FIRST], spent[PEER]),
            "more_than_signature_us": figure([a - b for a, b in zip(spent[FIRST], spent[FLOOR], strict=True)]),
            "cached_bytes": round(cached_bytes(issuer, now, tokens)),
        }
    return found


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> Figure:
    return figure([a / b for a, b in zip(ours, theirs, strict=True)])


def _rows(figures: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Return a row for each process."""
    return {
        name: {
            "seconds": figures["cpu_seconds"][name],
            "without expiry": figures["cpu_seconds_without_expiry"].get(name, 0.0),
            "ms per refresh": figures["cpu_ms_per_refresh"][name],
        }
        for name in figures["cpu_seconds"]
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit code."""
    parser(__spec__, __doc__, report="build/bench/tokens.json", quick="").parse_args(argv)
    rounds, count = sized((15, 2000), (3, 200), (1, 20))
    with Report(len(ALGORITHMS) * rounds) as report:
        found = measure(rounds, count, report)
    for algorithm in ALGORITHMS:
        report.figures(f"{algorithm}, us of CPU", found[algorithm]["us"])
    report.figures("seen first, x PyJWT alone", {name: found[name]["x_pyjwt"] for name in ALGORITHMS})
    print("bytes of a remembered token:", {name: found[name]["cached_bytes"] for name in ALGORITHMS})
    goals = []
    for name in ALGORITHMS:
        goals.append(goal(f"{name}, {FIRST}", "us", FIRST_US, found[name]["us"][FIRST]))
        goals.append(goal(f"{name}, {KNOWN}", "us", KNOWN_US, found[name]["us"][KNOWN]))
        goals.append(goal(f"{name}, {FIRST}", "x PyJWT", 1.1, found[name]["x_pyjwt"]))
    report.goals(goals)
    end_in_order()
    outcome = asyncio.run(run(sized(EXPIRING, EXPIRING_QUICK, EXPIRING_SMOKE)))
    clean = told(outcome)
    report.rows("CPU of expiring tokens", _rows(outcome.figures[EXPIRY]))
    found[EXPIRY] = outcome.figures
    print(f"written: {write('tokens', found, [*goals, *outcome.goals])}")
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
