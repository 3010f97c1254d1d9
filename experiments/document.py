"""An HTML document for reports: one file without scripts, with pictures as inline SVG."""

import subprocess
from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

_STYLE: Final = (
    "body{font:15px/1.45 sans-serif;max-width:1040px;margin:2em auto;padding:0 1em;color:#1b1e23}"
    "table{border-collapse:collapse;margin:1em 0;font-size:13px}td,th{border:1px solid #ccd0d6;padding:3px 8px}"
    "td{text-align:right}td:first-child,th{text-align:left}.missed{color:#c0262d;font-weight:600}"
    "pre{background:#f4f5f7;padding:.8em;overflow:auto;font-size:12px}svg{max-width:100%;height:auto}"
)


def document(title: str, parts: Sequence[str]) -> str:
    """Return a document of HTML elements."""
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n' + "\n".join(parts) + "\n</body></html>\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of text; cells with "(missed)" stand out."""
    lines = ["<table><tr>", *(f"<th>{escape(cell)}</th>" for cell in head), "</tr>"]
    for row in rows:
        cells = (f"<td{' class=missed' if '(missed)' in cell else ''}>{escape(cell)}</td>" for cell in row)
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return "\n".join([*lines, "</table>"])


def revision() -> str | None:
    """Return the revision of the code, with a mark if there are changes; None without Git."""
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()
