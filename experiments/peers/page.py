"""The report: one HTML file without scripts, with pictures as inline SVG."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

from experiments.document import document, table
from experiments.picture import Bar, Group, Row, draw

TITLE: Final = "DIEM beside other servers"
_HOW: Final = (
    "CPU is that of all processes of a system, above what they take without load, for each frame that reaches a "
    "client; a tick is published when all clients have the one before. Beside each figure is the multiple of what "
    "DIEM's mode single took in the same minutes, in alternating blocks; below 1 a system takes less than DIEM. DIEM "
    "stores every update on disk and answers reads by REST; the others keep what their row says."
)
_STORM: Final = (
    "What holds the connections is killed, and started again at once (DIEM: by its own supervisor). From 0.1 s later a "
    "writer publishes one update, again and again until it is accepted. All clients connect again within a second, "
    "and again a second later if they are refused. Nothing is published afterwards."
)


def page(figures: Mapping[str, Any], goals: Sequence[Mapping[str, Any]]) -> str:
    """Return the report."""
    systems, about = figures["systems"], figures["about"]
    cells = [*dict.fromkeys(cell for found in systems.values() for cell in found["cells"])]
    parts = [
        f"<h1>{TITLE}</h1>",
        f"<p>{escape(about['began'])}; {escape(about['machine'])}; load before {escape(about['load before'])}.</p>",
        f"<p>{escape('; '.join(f'{name} {version}' for name, version in about['versions'].items()))}.</p>",
        f"<p>{escape(_HOW)}</p>",
        *(f"<p>Not measured: {escape(name)}: {escape(why)}.</p>" for name, why in figures["skipped"].items()),
        "<h2>CPU of a frame: us, and x DIEM's single</h2>",
        table(
            ["", *cells],
            [[name, *(_frame(found["cells"].get(cell)) for cell in cells)] for name, found in systems.items()],
        ),
        draw("CPU of a frame", ["us, by kind of process"], _groups(systems, cells)),
        "<h2>Goals</h2>",
        table(
            ["", "goal", "measured"],
            [
                [
                    each["name"],
                    f"{each['goal']:g} {each['unit']}",
                    f"{each['measured']:g}{'' if each['reached'] else ' (missed)'}",
                ]
                for each in goals
            ],
        ),
        "<h2>Memory, and CPU without load</h2>",
        draw(
            "Memory and idle CPU",
            ["at rest, MiB", "a connection, KiB", "with 10 subscriptions, KiB", "idle CPU, ms/s"],
            [Group("", [_memory(name, found) for name, found in systems.items()])],
        ),
        _part(systems, "memory"),
        "<h2>An update that nobody watches</h2>",
        draw(
            "CPU of an update without subscribers",
            ["one at a time, us", "50 at once, us each"],
            [
                Group(
                    "",
                    [
                        Row(name, [Bar({"CPU": us}) for us in found["publish"].values()])
                        for name, found in systems.items()
                    ],
                )
            ],
        ),
        "<h2>A storm</h2>",
        f"<p>{_STORM}</p>",
        draw(
            "Storm",
            ["last client connected, s", "last client has the update, s", "clients without it"],
            [Group("", [_storm(name, found["storm"]) for name, found in systems.items()])],
        ),
        _part(systems, "storm"),
        "<h2>What is kept of updates</h2>",
        table(
            ["", "", "load of the machine"],
            [[n, found["keeps"], found.get("load", "")] for n, found in systems.items()],
        ),
    ]
    return document(TITLE, parts)


def _frame(cell: Mapping[str, Any] | None) -> str:
    return "" if cell is None else f"{cell['us']:.1f} ({cell['x single']:.2f} x)"


def _groups(systems: Mapping[str, Any], cells: Sequence[str]) -> list[Group]:
    groups = []
    for cell in cells:
        of = {name: found["cells"][cell] for name, found in systems.items() if cell in found["cells"]}
        floor = [row["C floor, us"] for row in of.values() if "C floor, us" in row]
        rows = [Row("C floor", [Bar({"server": sorted(floor)[len(floor) // 2]})])] if floor else []
        rows += [
            Row(name, [Bar({kind: max(0.0, us) for kind, us in row["by kind"].items()})]) for name, row in of.items()
        ]
        groups.append(Group(cell, rows))
    return groups


def _memory(name: str, found: Mapping[str, Any]) -> Row:
    held = found["memory"]
    names = ("at rest, MiB", "connection, KiB", "with 10 subscriptions, KiB")
    idle = sum(found["idle_ms_per_s"].values())
    return Row(name, [*(Bar({"memory": max(0.0, held[what])}) for what in names), Bar({"CPU": idle})])


def _storm(name: str, storm: Mapping[str, Any]) -> Row:
    has = storm["last client has it, s"]
    return Row(
        name,
        [
            Bar({"time": storm["last client connected, s"]}),
            None if has is None else Bar({"time": has}),
            Bar({"clients": storm["clients without it"]}),
        ],
    )


def _part(systems: Mapping[str, Any], part: str) -> str:
    names = [*next(iter(systems.values()))[part]] if systems else []
    return table(
        ["", *names], [[name, *(_shown(found[part][what]) for what in names)] for name, found in systems.items()]
    )


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"
