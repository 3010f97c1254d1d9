"""Health of the sources in reports of the Data Service, for people: failures and retries; pure."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

Source = dict[str, Any]
"""The entry of one source in the report of a Data Service."""
MAX_NAMED: Final = 3
"""Maximum number of failing sources named in a summary."""


def is_tried(source: Source) -> bool:
    """Return whether a source was tried since its process started."""
    return bool(source.get("ok") or source.get("error"))


def summary(sources: Sequence[Source]) -> str | None:
    """Return a line such as ``1 of 2 sources fails: load: no such directory``; None if none fails."""
    bad = [source for source in sources if source.get("error")]
    if not bad:
        return None
    named = "; ".join(f"{source.get('name')}: {source['error']}" for source in bad[:MAX_NAMED])
    return f"{failing(len(bad), len(sources))}: {named}{'; ...' if len(bad) > MAX_NAMED else ''}"


def failing(bad: int, of: int) -> str:
    """Return ``1 of 2 sources fails``."""
    return f"{bad} of {of} source{'' if of == 1 else 's'} fail{'s' if bad == 1 else ''}"


def next_attempt(source: Source, now_s: float) -> str:
    """Return ``next try in 20 s`` for a failing source, at an instant in Unix seconds; empty if unknown."""
    if not source.get("error"):
        return ""
    try:
        wait_s = datetime.fromisoformat(str(source.get("next_attempt"))).timestamp() - now_s
    except ValueError:
        return ""
    if wait_s < 1:
        return "trying again"
    return f"next try in {wait_s:.0f} s" if wait_s < 120 else f"next try in {wait_s / 60:.0f} min"
