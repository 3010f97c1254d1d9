"""JSON Schemas of documents: whatever they say, and whatever is checked, the answer is one line, and soon."""

from pathlib import Path
from typing import Any

import pytest

from services.data.kinds.prefixes import MAX_FAULT, Prefix, Prefixes, schema_fault
from tests.unit.services.data.sources.toml import assert_fault

LOOPS: dict[str, dict[str, Any]] = {
    "of itself": {"$ref": "#"},
    "of two": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    "of all": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]},
    "dynamic": {"$dynamicAnchor": "x", "allOf": [{"$dynamicRef": "#x"}]},
    "without evaluated fields": {
        "$ref": "#/$defs/n",
        "$defs": {"n": {"unevaluatedProperties": False, "not": {"$ref": "#"}}},
    },
}


@pytest.mark.parametrize("name", LOOPS)
def test_schemas_that_refer_to_themselves_end(name: str) -> None:
    fault = schema_fault(LOOPS[name])
    for value in (1, {"a": {"a": [1] * 100}}):
        fault(value)


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "https://evil.example/s"},
        {"$ref": "file:///etc/passwd"},
        {"$id": "https://evil.example/s", "properties": {"a": {"$ref": "other"}}},
        {"$schema": "https://evil.example/meta"},
        {"$schema": "file:///etc/passwd"},
        [1],
        "x",
        {"type": "x"},
        {"pattern": "("},
    ],
)
def test_other_schemas_are_refused_in_one_line_without_reading_other_documents(schema: Any) -> None:
    with pytest.raises(ValueError, match=r".") as raised:
        schema_fault(schema)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) <= MAX_FAULT


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(?=(a+)+$)b", "^(a+)+\\1$", "(?<!x)(a|aa)+$(?!y)", "^(a|a?)+$"])
def test_patterns_that_backtrack_end_and_the_fault_names_them(pattern: str) -> None:
    found = schema_fault({"properties": {"x": {"pattern": pattern}}})({"x": "a" * 5000 + "!"})
    assert found is not None
    assert found.startswith("$.x: ")
    assert found.endswith(("backtracking count exceeded", f'does not match "{pattern}"'))
    assert len(found) < 2 * MAX_FAULT


def test_a_schema_is_of_documents_alone(tmp_path: Path) -> None:
    for kind in ("", 'kind = "bytes"\n'):
        text = f'[[prefix]]\nprefix = "/a"\n{kind}json_schema = "s.json"\n'
        assert_fault(tmp_path, text, "line 1, [[prefix]] 1: json_schema needs kind = 'document'")


def test_the_longest_prefix_rules_in_whole_segments() -> None:
    found = Prefixes.of_all([Prefix("/a", "series"), Prefix("/a/b", "bytes"), Prefix("/a/b/c", "notice")])
    names = ("/a", "/a/b", "/a/bc", "/a/b/c/d/e", "/ab", "/a/b/cd")
    assert [found.of(name).kind for name in names] == ["series", "bytes", "series", "notice", "", "bytes"]
