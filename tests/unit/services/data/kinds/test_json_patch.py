"""JSON Patch and Merge Patch: what the RFCs say, and bounds for everything else."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diem.protocol.media_types import JSON_PATCH, MERGE_PATCH
from services.data.errors import DataError, InvalidDataset, MalformedBody, PatchRefused
from services.data.kinds import Body
from services.data.kinds.document import DocumentKind
from services.data.kinds.json_patch import MAX_COPIED_BYTES, MAX_OPERATIONS, apply, merge
from services.data.store.index import StoredVersion


def operation(op: str, path: str, **more: Any) -> dict[str, Any]:
    """Return an operation; ``source`` is ``from``."""
    return {"op": op, "path": path, **({"from": more.pop("source")} if "source" in more else {}), **more}


# RFC 6902 appendix A, in its order, and what the library of before did otherwise.
WORK = [
    ({"foo": "bar"}, [operation("add", "/baz", value="qux")], {"baz": "qux", "foo": "bar"}),
    ({"foo": ["bar", "baz"]}, [operation("add", "/foo/1", value="qux")], {"foo": ["bar", "qux", "baz"]}),
    ({"baz": "qux", "foo": "bar"}, [operation("remove", "/baz")], {"foo": "bar"}),
    ({"foo": ["bar", "qux", "baz"]}, [operation("remove", "/foo/1")], {"foo": ["bar", "baz"]}),
    ({"baz": "qux", "foo": "bar"}, [operation("replace", "/baz", value="boo")], {"baz": "boo", "foo": "bar"}),
    (
        {"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}},
        [operation("move", "/qux/thud", source="/foo/waldo")],
        {"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}},
    ),
    ({"foo": ["a", "grass", "b"]}, [operation("move", "/foo/2", source="/foo/1")], {"foo": ["a", "b", "grass"]}),
    (
        {"baz": "qux", "foo": ["a", 2, "c"]},
        [operation("test", "/baz", value="qux"), operation("test", "/foo/1", value=2)],
        {"baz": "qux", "foo": ["a", 2, "c"]},
    ),
    ({"foo": "bar"}, [operation("add", "/child", value={"x": {}})], {"child": {"x": {}}, "foo": "bar"}),
    ({"foo": "bar"}, [operation("add", "/baz", value="qux", xyz=123)], {"baz": "qux", "foo": "bar"}),
    ({"/": 9, "~1": 10}, [operation("test", "/~01", value=10)], {"/": 9, "~1": 10}),
    ({"foo": ["bar"]}, [operation("add", "/foo/-", value=["abc", "def"])], {"foo": ["bar", ["abc", "def"]]}),
    ({"a": 1}, [operation("add", "", value=[1]), operation("replace", "", value=2)], 2),
    ({"a": 1}, [operation("test", "/a", value=1.0), operation("move", "/a", source="/a")], {"a": 1}),
    ({"a": {"b": 1}}, [operation("copy", "/a/c", source="/a")], {"a": {"b": 1, "c": {"b": 1}}}),
    ({"": {"": 1}}, [operation("remove", "//")], {"": {}}),
]  # fmt: skip
FAIL = [
    ({"baz": "qux"}, [operation("test", "/baz", value="bar")], PatchRefused),
    ({"foo": "bar"}, [operation("add", "/baz/bat", value="qux")], PatchRefused),
    ({"/": 9, "~1": 10}, [operation("test", "/~01", value="10")], PatchRefused),
    ({"a": 1}, [operation("test", "/a", value=True)], PatchRefused),
    ({"a": [0]}, [operation("test", "/a", value=[False])], PatchRefused),
    ({"a": "text"}, [operation("test", "/a/0", value="t")], PatchRefused),
    ({"a": "text"}, [operation("add", "/a/0", value="t")], PatchRefused),
    ({"a": [1]}, [operation("remove", "/a/-")], PatchRefused),
    ({"a": [1]}, [operation("remove", "/a/01")], PatchRefused),
    ({"a": [1]}, [operation("remove", "/a/-1")], PatchRefused),
    ({"a": [1]}, [operation("add", "/a/2", value=1)], PatchRefused),
    ({"a": [1]}, [operation("add", "/a/" + "9" * 900, value=1)], PatchRefused),
    ({}, [operation("replace", "/a", value=1)], PatchRefused),
    ({}, [operation("remove", "")], InvalidDataset),
    ({"a": {}}, [operation("move", "/a/b", source="/a")], InvalidDataset),
    ({}, [operation("move", "/b", source="")], InvalidDataset),
    ({}, [operation("add", "/a")], InvalidDataset),
    ({}, [operation("add", "a", value=1)], InvalidDataset),
    ({}, [operation("add", "/~2", value=1)], InvalidDataset),
    ({}, [operation("add", "/" * 2000, value=1)], InvalidDataset),
    ({}, [{"op": ["add"], "path": "/a", "value": 1}], InvalidDataset),
]  # fmt: skip


@pytest.mark.parametrize(("document", "patch", "expected"), WORK)
def test_operations_do_what_the_rfc_says(document: Any, patch: Any, expected: Any) -> None:
    assert apply(document, patch) == expected


@pytest.mark.parametrize(("document", "patch", "error"), FAIL)
def test_other_operations_are_refused_in_one_line(document: Any, patch: Any, error: type[InvalidDataset]) -> None:
    with pytest.raises(InvalidDataset) as raised:
        apply(document, patch)
    assert type(raised.value) is error
    assert len(str(raised.value)) < 300
    assert "\n" not in str(raised.value)


def test_copies_are_copies() -> None:
    patch = [operation("copy", "/b", source="/a"), operation("add", "/b/-", value=1)]
    assert apply({"a": [0]}, patch) == {"a": [0], "b": [0, 1]}


def test_patches_are_bounded() -> None:
    with pytest.raises(InvalidDataset, match=f"at most {MAX_OPERATIONS} operations, not 100000"):
        apply({}, [operation("add", "/a", value=1)] * 100_000)
    doubling = [operation("copy", f"/{number}", source="") for number in range(100)]
    with pytest.raises(InvalidDataset, match=f"the copies exceed {MAX_COPIED_BYTES} bytes"):
        apply({"a": "x" * 1000}, doubling)


@pytest.mark.parametrize(
    "last", [operation("add", "/c", value=1), operation("copy", "/c", source=""), operation("test", "", value={})]
)
def test_a_document_that_nests_ever_deeper_is_refused(last: dict[str, Any]) -> None:
    """Each value and each path is within its bound; the document nests 28 levels deeper with every move."""
    value = orjson.loads(b'{"x":' * 28 + b"{}" + b"}" * 28)
    patch = [operation("add", "/a", value=value)]
    for here, there in zip("ab" * 30, "ba" * 30, strict=True):
        patch += [
            operation("add", f"/{there}", value=value),
            operation("move", f"/{there}" + "/x" * 28, source=f"/{here}"),
        ]
    with pytest.raises(DataError, match=r"nested too deeply|the test fails"):
        _patched({}, [*patch, last])


@given(st.data())
def test_any_patch_of_any_document_is_applied_or_refused(data: st.DataObject) -> None:
    values = st.recursive(
        st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a", "-", "__proto__"]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["", "a", "0", "-", "~", "/"]), inner, max_size=3)
        ),
        max_leaves=8,
    )
    paths = st.lists(st.sampled_from(["", "a", "0", "1", "-", "~0", "~1", "~", "00", "é"]), max_size=3).map(
        lambda names: "".join(f"/{name}" for name in names)
    )
    names = st.sampled_from(["add", "remove", "replace", "move", "copy", "test", "fly", None])
    anything = st.fixed_dictionaries(
        {}, optional={"op": names | values, "path": paths | values, "from": paths | values, "value": values}
    )
    operations = st.lists(anything | values, max_size=4) | values
    document, patch = data.draw(values), data.draw(operations)
    before = orjson.dumps(document)
    for media_type in (JSON_PATCH, MERGE_PATCH):
        try:
            made = _patched(document, patch, media_type)
        except DataError as refusal:
            assert "\n" not in str(refusal)
            continue
        assert orjson.dumps(orjson.loads(made)) == made
    assert orjson.dumps(document) == before


def test_a_merge_patch_that_nests_deeper_is_refused() -> None:
    value: Any = 1
    for _ in range(33):
        value = {"a": value}
    with pytest.raises(MalformedBody, match="nested more than 32 deep"):
        _patched({}, value, MERGE_PATCH)
    assert merge({"a": [1]}, {"a": {"b": None, "c": {"d": None}}}) == {"a": {"c": {}}}


def _patched(document: Any, patch: Any, media_type: str = JSON_PATCH) -> bytes:
    stored = StoredVersion(1, 1, 0, "application/json", orjson.dumps(document))
    return DocumentKind().patch("/a", stored, Body(orjson.dumps(patch), media_type)).content
