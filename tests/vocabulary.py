"""Check that identifiers use the field's words: ``make check`` runs it over product, SDK and page.

A word of :data:`REPLACED` is found as a part of a name that the code defines (``_said_at``, ``OwnerTold``), in Python
and in TypeScript. Names of tests are sentences and are left alone, as are names that others define.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
PYTHON: Final = ("bridge", "deploy", "diem", "metadata", "proxy", "services")
TYPESCRIPT: Final = ("client/src/sdk",)
REPLACED: Final = {
    **dict.fromkeys(("tell", "tells", "telling", "say", "says", "saying"), "notify, publish, send, report, render"),
    **dict.fromkeys(("told", "said"), "announced, reported, reply, text"),
    **dict.fromkeys(("hear", "hears", "hearing", "heard"), "received, listen"),
    **dict.fromkeys(("asked", "asking"), "requested, pending, requester"),
    **dict.fromkeys(("beat", "beats", "beaten"), "heartbeat"),
    **dict.fromkeys(("look", "looks", "looked"), "poll, check, inspect"),
    **dict.fromkeys(("taken", "took"), "acquired, received, applied"),
    **dict.fromkeys(("doubt", "doubts", "doubted"), "suspect, revalidate"),
    "settled": "stable, registered",
    **dict.fromkeys(("stranger", "strangers"), "unexpected records"),
    **dict.fromkeys(("bury", "buried", "tomb", "tombs"), "tombstone"),
    **dict.fromkeys(("flying", "landed"), "in_flight, acknowledged"),
    **dict.fromkeys(("lane", "lanes"), "partition queue"),
    "ledger": "tracker, usage, subscription set",
    "upkeep": "retention",
    "leisure": "long_running",
    **dict.fromkeys(("visit", "visits", "visitor", "visitors"), "trace"),
    "came": "connected",
    "tally": "counter",
    "boot": "incarnation",
    "trouble": "reason, problem, drop_reason",
    "twins": "duplicate recorders",
    **dict.fromkeys(("judge", "judging"), "check, parse"),
    **dict.fromkeys(("kicked", "packed"), "perturb, greedy_pack"),
    "parties": "interfaces",
    "leavings": "pending unsubscribes",
    "knocking": "pending handshakes",
    **dict.fromkeys(("strike", "strikes"), "violation"),
    "hush": "mute",
    "voices": "process logs",
    "hurry": "expedite",
    "forgive": "refund",
    "patience": "timeout",
    "handover": "fallback",
    **dict.fromkeys(("owe", "owed"), "enqueue, due"),
    "learnt": "recorded, from traffic",
    "dialled": "resolved",
}
"""Replaced word -> what the field calls it."""
PUBLIC: Final = {
    ("client/src/sdk/data.ts", "told"),
    ("client/src/sdk/updates.ts", "told"),
    ("learning/jobs/statistics.py", "twins"),
    ("learning/statistics/model.py", "taken"),
    ("learning/statistics/model.py", "twins"),
}
"""Names that applications or files use: they stay until a release may break them."""

_PART: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_DECLARED: Final = re.compile(
    r"\b(?:class|interface|function|const|let|type|get|set|async|readonly|static)\s+#?([A-Za-z_]\w*)|^\s+#?([a-z]\w*)\(",
    re.MULTILINE,
)


class Finding(NamedTuple):
    """A replaced word in a name."""

    path: Path
    line: int
    name: str
    word: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.name}: not `{self.word}` but {REPLACED[self.word]}"


def words(name: str) -> set[str]:
    """Return the replaced words among the parts of a name."""
    return {part.lower() for part in _PART.findall(name)} & REPLACED.keys()


def defined_in_python(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of what a module defines: classes, functions, parameters, variables and attributes."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield node.lineno, name
            case ast.arg(arg=name):
                yield node.lineno, name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield node.lineno, name


def defined_in_typescript(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of the declarations that a line begins."""
    for number, line in enumerate(source.splitlines(), 1):
        for match in _DECLARED.finditer(line):
            yield number, match[1] or match[2]


def findings() -> Iterator[Finding]:
    """Yield every replaced word of the product's names."""
    for folders, suffix, defined in (
        (PYTHON, "py", defined_in_python),
        (TYPESCRIPT, "ts", defined_in_typescript),
    ):
        for path in sorted(path for folder in folders for path in (ROOT / folder).rglob(f"*.{suffix}")):
            for line, name in defined(path.read_text()):
                relative = path.relative_to(ROOT)
                if (str(relative), name) in PUBLIC:
                    continue
                for word in sorted(words(name)):
                    yield Finding(relative, line, name, word)


def main() -> int:
    """Print the findings; return 1 if there are any."""
    found = list(findings())
    print(*found, f"{len(found)} names with replaced words", sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
