"""The report: one HTML file without scripts, with pictures as inline SVG."""

import os
import platform
import shlex
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.metadata import version
from typing import Any, Final

from experiments.document import document, revision, table
from experiments.modes.compare import CPU_WORST, by_plan, error
from experiments.modes.plan import SEED
from experiments.modes.regimes import REGIMES
from experiments.picture import Bar, Group, Row, draw
from tests.support.size import SIZE, RunSize

PACKAGES: Final = ("aiokafka", "httpx", "orjson", "uvloop", "websockets")
_ERRORS: Final = (
    "Predicted against measured, where a kind has a twentieth of the run's CPU or more; in parentheses the standard "
    "error of the prediction."
)


def about(argv: Sequence[str] | None) -> dict[str, Any]:
    """Return how the figures came about: command, versions, machine, seed."""
    quick = "" if SIZE is RunSize.FULL else f"{SIZE.name}=1 "
    return {
        "command": f"{quick}python -m experiments.modes {shlex.join(argv or [])}".strip(),
        "revision": revision(),
        "seed": SEED,
        "machine": {"cores": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()},
        "versions": {name: version(name) for name in PACKAGES},
    }


def _period(began: str, ended: str) -> str:
    first, last = (datetime.fromisoformat(each).astimezone(UTC) for each in (began, ended))
    until = "%H:%M UTC" if first.date() == last.date() else "%-d %B, %H:%M UTC"
    return f"{first:%-d %B %Y, %H:%M} to {last:{until}}"


def page(result: Mapping[str, Any], predictions: str) -> str:
    """Return the report of a comparison."""
    rows = result["runs"]
    size = result["size"]
    note = "" if size == RunSize.FULL else f" ({size}: its figures are not to be compared with others)"
    parts = [
        f"<h1>Comparison of the scaling modes{escape(note)}</h1>",
        f"<p>{escape(_period(result['began'], result['ended']))}</p>",
        "<h2>Goals</h2>",
        table(
            ["", "goal", "measured"],
            [
                [goal["name"], f"{goal['goal']} {goal['unit']}", _goal(goal["measured"], reached=goal["reached"])]
                for goal in result["goals"]
            ],
        ),
        "<h2>Loads</h2>",
        table(*_loads(rows)),
        "<h2>CPU by kind of process, ms a second</h2>",
        draw("CPU by kind of process", ["measured, ms/s", "predicted before, ms/s"], _groups(rows)),
        "<p>Constants are fitted to the runs marked <em>fit</em>; the others were predicted before they began.</p>",
        "<h2>Against mode x with as many servers</h2>",
        "<p>CPU of all processes, more or less than that of x, %.</p>",
        table(
            ["", "measured", "predicted"],
            [
                [f"{each['regime']}: {_sized(each)}", f"{each['measured']:+.0f}", f"{each['predicted']:+.0f}"]
                for each in result["against_x"]
            ],
        ),
        "<h2>By hash and by plan</h2>",
        *_plans(rows, result["plan_in_r1"]),
        "<h2>Every configuration</h2>",
        table(*_every(rows)),
        "<h2>Errors of each kind of process, %</h2>",
        f"<p>{_ERRORS}</p>",
        table(*_errors(rows)),
        f"<p>{escape(_beyond(rows))}</p>",
        f"<h2>The same twice</h2><p>{escape(_control(result['control']))}</p>",
        "<h2>The knee of one server</h2>",
        *_knee(result["knee"]),
        "<h2>Other servers on the trace of R1</h2>",
        *_peers(result["peers"]),
        "<h2>Constants, microseconds, with standard errors</h2>",
        f"<p>{escape(result['constants_source'])}</p>",
        table(["", "value", "error"], [[name, *map(str, pair)] for name, pair in result["constants"].items()]),
        "<h2>How</h2>",
        f"<pre>{escape(_how(result))}</pre>",
        "<h2>Predictions, as written before each run</h2>",
        f"<pre>{escape(predictions)}</pre>",
    ]
    return document("Comparison of the scaling modes", parts)


def _goal(value: float | None, *, reached: bool) -> str:
    return "not measured" if value is None else f"{value:g}{'' if reached else ' (missed)'}"


def _loads(rows: Iterable[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    run = {row["regime"] for row in rows}
    return ["", "load", "clients", "subscriptions of each", "endpoints", "updates/s"], [
        [
            each.name,
            each.meaning,
            f"{each.clients:,}",
            f"{each.subscriptions:,}",
            f"{each.endpoints:,}",
            f"{each.updates:,}",
        ]
        for each in REGIMES
        if each.name in run
    ]


def _label(row: Mapping[str, Any]) -> str:
    marks = (("control", ", again"), ("planned", ", planned"), ("fitted", ", fit"))
    return f"{_sized(row)}{next((text for name, text in marks if row[name]), '')}"


def _sized(row: Mapping[str, Any]) -> str:
    clones = f" x {row['clones']}" if row["clones"] > 1 else ""
    return f"{row['configuration']}, {row['servers']}{clones}"


def _groups(rows: Iterable[Mapping[str, Any]]) -> list[Group]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        bars = [Bar(row["cpu_ms"]), Bar(row["predicted_cpu_ms"])]
        found.setdefault(row["regime"], []).append(Row(_label(row), bars))
    return [Group(regime, bars) for regime, bars in found.items()]


def _every(rows: Iterable[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    head = ["", "CPU, ms/s", "predicted", "JVM compiler", "connections", "predicted", "frames/s", "predicted"]
    head += ["taken, unwatched", "memory, MiB", "predicted", "p50, ms", "p99, ms", "not clean"]
    return head, [
        [
            f"{row['regime']}: {_label(row)}",
            f"{sum(row['cpu_ms'].values()):,.0f}",
            f"{sum(row['predicted_cpu_ms'].values()):,.0f}",
            f"{row['compiling_ms']:,.0f}",
            f"{row['connections']:,.0f}",
            f"{row['predicted_connections']:,.0f}",
            f"{row['frames_per_s']:,.0f}",
            f"{row['predicted_frames_per_s']:,.0f}",
            f"{100 * row['waste']:.0f} %",
            f"{row['memory_mib']:,.0f}",
            f"{row['predicted_memory_mib']:,.0f}",
            f"{row['delay_ms']['p50']:g}",
            f"{row['delay_ms']['p99']:g}",
            "; ".join(row["unclean"]),
        ]
        for row in rows
    ]


def _errors(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    kinds = list(dict.fromkeys(kind for row in rows for kind in row["cpu_errors"]))
    return ["", *kinds], [
        [
            f"{row['regime']}: {_label(row)}",
            *(_error(row, kind) if kind in row["cpu_errors"] else "" for kind in kinds),
        ]
        for row in rows
    ]


def _error(row: Mapping[str, Any], kind: str) -> str:
    known = 100 * row["predicted_cpu_error_ms"].get(kind, 0.0) / row["cpu_ms"][kind]
    return f"{row['cpu_errors'][kind]:+.0f} ({known:.0f})"


def _beyond(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return how many errors are above the goal, and which of them standard errors do not explain."""
    ahead = [row for row in rows if not row["fitted"]]
    offs = [off for row in ahead for off in row["cpu_errors"].values()]
    far = sum(abs(off) > CPU_WORST for off in offs)
    names = [f"{row['regime']}: {_label(row)}: {kind}" for row in ahead for kind in row["beyond"]]
    return (
        f"{far} of {len(offs)} predictions are more than {CPU_WORST:.0f} % off; by more than twice the standard "
        f"errors of prediction and measurement: {'; '.join(names) or 'none'}."
    )


def _plans(rows: Sequence[Mapping[str, Any]], in_r1: Mapping[str, float]) -> list[str]:
    """Return what a plan changes where clients have common interests."""
    found = [
        [
            f"{planned['regime']}: {_sized(planned)}",
            f"{planned['fan_out']['hashed']:.2f}",
            f"{planned['fan_out']['planned']:.2f}",
            f"{hashed['connections']:,.0f}",
            f"{planned['connections']:,.0f}",
            f"{_more(hashed, planned, 'cpu_ms'):+.1f}",
            f"{_more(hashed, planned, 'predicted_cpu_ms'):+.1f}",
        ]
        for hashed, planned in by_plan(rows)
    ]
    head = ["", "servers a client needs, by hash", "by plan", "connections, by hash", "by plan"]
    head += ["CPU of all processes by plan, more, %", "predicted"]
    text = (
        "The plan is learnt from the subscriptions of the trace and applied before the clients come. In R1, where "
        f"interests have no structure, a client needs {in_r1['hashed']:.2f} servers by hash and would need "
        f"{in_r1['planned']:.2f} by a plan for these clients."
    )
    return [f"<p>{text}</p>", table(head, found)] if found else [f"<p>{text}</p><p>Not measured.</p>"]


def _more(hashed: Mapping[str, Any], planned: Mapping[str, Any], key: str) -> float:
    return error(sum(planned[key].values()), sum(hashed[key].values()))


def _control(control: Mapping[str, Any]) -> str:
    if not control["differences"]:
        return "Not measured."
    each = ", ".join(f"{kind} {off:.0f} %" for kind, off in control["differences"].items())
    return (
        f"{control['configuration']} was measured once more as if it were another configuration. It differs by: {each}."
    )


def _knee(knee: Mapping[str, Any] | None) -> list[str]:
    if knee is None:
        return ["<p>Not measured.</p>"]
    measured = "not reached" if knee["measured"] is None else f"{knee['measured']:,.0f}"
    text = (
        f"Predicted: {knee['predicted']:,.0f} updates a second in writes of 50 for 300 clients with 10 subscriptions: "
        f"the server uses 0.7 of its core. Measured: {measured}, up to which the slowest of 100 writes take as "
        "long as in a queue with random arrivals at that utilisation: "
        f"{knee['factor']:.1f} times as long as the server works on one."
    )
    return [
        f"<p>{text}</p>",
        table(
            ["writes a second", "p50, ms", "p99, ms", "utilisation"],
            [
                [f"{s['rate']:.0f}", f"{1000 * s['p50_s']:.1f}", f"{1000 * s['p99_s']:.1f}", f"{s['utilisation']:.2f}"]
                for s in knee["steps"]
            ],
        ),
    ]


def _peers(peers: Mapping[str, Any]) -> list[str]:
    """Return what other servers took, beside mode single."""
    rows = [
        [
            each["name"],
            f"{each['cpu_ms']:,.0f}",
            f"{each['frames_per_s']:,.0f}",
            f"{each['expected_frames_per_s']:,.0f}",
            "-" if each["us_per_frame"] is None else f"{each['us_per_frame']:,.1f}",
        ]
        for each in peers["measured"]
    ]
    found = [table(["", "CPU, ms/s", "frames/s", "by the trace", "CPU of a frame, us"], rows)] if rows else []
    if peers["single"] is not None:
        server, both = peers["single"]["server"], peers["single"]["server_and_data_service"]
        found.append(f"<p>Mode single: {server:,.1f} us a frame; {both:,.1f} with the Data Service, which stores.</p>")
    absent = "; ".join(f"{name}: {why}" for name, why in peers["absent"].items())
    return [*found, f"<p>Not measured: {escape(absent)}.</p>"] if absent else found


def _how(result: Mapping[str, Any]) -> str:
    keys = ("command", "revision", "seed", "machine", "versions")
    return "\n".join(f"{key}: {result[key]}" for key in keys)
