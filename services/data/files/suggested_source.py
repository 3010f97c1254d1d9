"""A suggestion as JSON."""

from typing import Any

import orjson

from services.data.files.suggestion import Suggestion
from services.data.kinds import SERIES, Representation


def points_of(made: Representation) -> list[dict[str, Any]]:
    """Return the points of a series as they would be published; of other kinds, none."""
    if made.media_type != SERIES:
        return []
    found: list[dict[str, Any]] = orjson.loads(made.content)["points"]
    return found


def as_json(made: Suggestion, table: str) -> dict[str, Any]:
    """Return a suggestion as a JSON object; ``table`` is its TOML."""
    return {
        "toml": table,
        "name": made.name,
        "preset": made.preset or None,
        "problem": made.problem or None,
        "shown": [each._asdict() for each in made.notes],
        "unsure": [each._asdict() for each in made.questions],
        "endpoints": [*map(_endpoint, made.found)],
    }


def _endpoint(made: Representation) -> dict[str, Any]:
    points = points_of(made)
    if not points:
        return {"endpoint": made.endpoint, "media_type": made.media_type, "content": made.content.decode()[:1000]}
    return {
        "endpoint": made.endpoint,
        "media_type": made.media_type,
        "unit": made.label("unit"),
        "resolution": made.label("resolution"),
        "points": len(points),
        "gaps": sum(each["value"] is None for each in points),
        "first": points[0],
        "last": points[-1],
    }
