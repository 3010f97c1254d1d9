"""Layouts as texts."""

import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from services.data.files.layout_text import layout_text

TEXTS = st.text()
VALUES = TEXTS | st.integers(-(2**63), 2**63 - 1) | st.booleans() | st.lists(TEXTS) | st.dictionaries(TEXTS, TEXTS)
TABLES = st.dictionaries(TEXTS.filter(lambda key: key != "mapping"), VALUES)


@given(TABLES, TABLES)
def test_a_layout_is_read_as_it_was_written(fields: dict[str, Any], keys: dict[str, Any]) -> None:
    assert tomllib.loads(layout_text(fields, keys)) == {**fields, **({"mapping": keys} if keys else {})}


def test_a_layout_is_readable() -> None:
    text = layout_text({"zone": "Europe/Berlin"}, {"delimiter": ";", "header": 2, "gaps": ["-"], "where": {"a b": "x"}})
    assert text == (
        'zone = "Europe/Berlin"\n\n[mapping]\ndelimiter = ";"\nheader = 2\ngaps = ["-"]\nwhere = { "a b" = "x" }\n'
    )
