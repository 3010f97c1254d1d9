"""What ``diem why`` and ``diem doctor`` find: parts of a system or a machine, the state of each, and the remedy."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final, NamedTuple

from rich.console import Console
from rich.text import Text

from deploy.invocation import pasteable
from deploy.terminal import plain_table


class State(StrEnum):
    """What is known of a part."""

    OK = "ok"
    UNKNOWN = "unknown"
    """Nothing: what has the answer does not answer."""
    NOTE = "note"
    """Worth a look; by itself it keeps nothing from working."""
    FAULT = "fault"


class Diagnosis(NamedTuple):
    """The state of one part."""

    name: str
    state: State
    text: str
    remedy: str = ""


def ok(name: str, text: str) -> Diagnosis:
    """Return the state of a part that is well."""
    return Diagnosis(name, State.OK, text)


def note(name: str, text: str, remedy: str = "") -> Diagnosis:
    """Return the state of a part worth a look."""
    return Diagnosis(name, State.NOTE, text, remedy)


def fault(name: str, text: str, remedy: str = "") -> Diagnosis:
    """Return the state of a part at fault."""
    return Diagnosis(name, State.FAULT, text, remedy)


_STYLES: Final = {State.FAULT: "bold red", State.NOTE: "yellow", State.UNKNOWN: "dim", State.OK: "green"}


def has_fault(found: Iterable[Diagnosis]) -> bool:
    """Return whether a part is at fault."""
    return any(each.state is State.FAULT for each in found)


def as_json_values(found: Iterable[Diagnosis]) -> list[dict[str, Any]]:
    """Return the states as JSON values."""
    return [each._asdict() for each in found]


def print_table(console: Console, heading: str, found: Iterable[Diagnosis], *, with_remedies: bool) -> None:
    """Print a line for each part, ``with_remedies`` below those that need one."""
    table = plain_table(heading, "state", "", wrap=("",))
    for each in found:
        table.add_row(each.name, Text(each.state, style=_STYLES[each.state]), Text(each.text))
        if with_remedies and each.remedy:
            table.add_row("", "", Text(f"-> {pasteable(each.remedy)}", style="dim"))
    console.print(table)
