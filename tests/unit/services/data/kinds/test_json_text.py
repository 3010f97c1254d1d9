"""JSON of requests: one canonical form, and nothing that parsers read differently, in linear time."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from services.data.errors import DataError, InvalidDataset, MalformedBody
from services.data.kinds import json_text
from services.data.kinds.json_text import MAX_DEPTH, canonical
from services.data.large import LARGE_BYTES

# What could be taken for structure, fields, numbers or their ends, also in strings.
TEXT = st.text(alphabet='"\\:,[]{}e1-. aé\n\u2028', max_size=8) | st.just("1234567890123456789012")
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


@pytest.fixture(scope="module", autouse=True)
def small_steps() -> Iterator[None]:
    """Texts of all tests take several steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_text, "_STEP_BYTES", 3)
        yield


@given(VALUES, st.booleans(), st.sampled_from([None, 0, 2]))
def test_equal_values_have_one_form_however_they_are_written(value: Any, ascii_: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_, indent=indent).encode()
    made = canonical(text)
    assert made == orjson.dumps(orjson.loads(text))
    assert canonical(made) == made


@given(st.dictionaries(TEXT, VALUES, min_size=1, max_size=4), st.data())
def test_a_field_that_is_repeated_anywhere_is_refused(value: dict[str, Any], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(value)))
    key = json.dumps(name)
    spelled = data.draw(st.sampled_from([key, json.dumps(name, ensure_ascii=False), _escaped(name)]))
    text = f"{json.dumps(value)[:-1]}, {spelled}: 1}}"
    for outer in (text, f'[{{"a:": {text}}}]', f'{{"\\\\": {text}}}'):
        with pytest.raises(InvalidDataset, match="appears twice"):
            canonical(outer.encode())


def _escaped(name: str) -> str:
    return '"' + "".join(f"\\u{ord(character):04x}" for character in name) + '"'


@given(st.integers(-(10**30), 10**30))
@example(2**64 - 1)
@example(2**64)
@example(-(2**63))
@example(-(2**63) - 1)
def test_whole_numbers_are_exact_or_refused(number: int) -> None:
    exact = -(2**63) <= number <= 2**64 - 1
    for form in ("%d", '{"a": %d}', "[true,%d]", '["1e:", %d]', '{"a\\\\":%d }'):
        text = form.replace("%d", str(number)).encode()
        if exact:
            assert str(number).encode() in canonical(text)
        else:
            with pytest.raises(MalformedBody, match="64 bits: send it as a string"):
                canonical(text)


@pytest.mark.parametrize(
    "text",
    [
        b'"12345678901234567890123"',
        b'{"12345678901234567890123": 1}',
        b"0.12345678901234567890123",
        b"12345678901234567890123.5",
        b"1e-0000000000000000000001",
        b"12345678901234567890123E2",
        b"[1.5e+0000000000000000000001 ]",
    ],
)
def test_digits_of_other_things_are_no_long_numbers(text: bytes) -> None:
    assert orjson.loads(canonical(text)) == json.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[",
        b"[1",
        b'"',
        b'"\\',
        b'{"a"',
        b"\xff",
        b'"\xed\xa0\x80"',
        b'"\\ud800"',
        b"[1e400]",
        b"\xef\xbb\xbf1",
        b"[01]",
    ],
)
def test_other_texts_are_malformed(text: bytes) -> None:
    with pytest.raises(MalformedBody, match=r"not JSON|nested"):
        canonical(text)


@given(st.binary(max_size=40) | st.text(alphabet='[]{}":,\\1ea ', max_size=40).map(str.encode))
def test_any_bytes_are_json_or_refused(text: bytes) -> None:
    try:
        made = canonical(text)
    except DataError:
        return
    assert orjson.loads(made) == orjson.loads(text)


def test_pages_of_html_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MalformedBody, match="a page of HTML"):
        canonical(b"  <!doctype html>")
    monkeypatch.setattr(json_text, "MAX_NESTED", 3)
    assert canonical(b'[[],{"[[[":"{"}]') == b'[[],{"[[[":"{"}]'
    with pytest.raises(MalformedBody, match="more than 3 arrays and objects"):
        canonical(b"[[],[],{}]")
    monkeypatch.setattr(json_text, "MAX_FIELDS", 2)
    assert canonical(b'{"a:":":","b":[]}') == b'{"a:":":","b":[]}'
    with pytest.raises(MalformedBody, match="more than 2 fields"):
        canonical(b'[{"a":1,"b":{"a":1}}]')


def test_a_field_that_is_repeated_in_a_large_body_is_not_named() -> None:
    for size, expected in ((10, "the field 'a' appears twice"), (LARGE_BYTES, "^a field appears twice in one object")):
        with pytest.raises(InvalidDataset, match=expected):
            canonical(b'{"a":1,"b":"%b","a":2}' % (b"x" * size))


def test_deep_nesting_is_refused_at_any_depth() -> None:
    for depth in (MAX_DEPTH + 1, 254, 1025, 100_000):
        for start, end in (("[", "]"), ('{"a":', "1}"), ('{"\\"":[', "]}")):
            text = start * depth + "1" + end[-1] * depth if end == "1}" else start * depth + end * depth
            with pytest.raises(MalformedBody, match="nested more than 32 deep"):
                canonical(text.encode())


FIELDS = 60_000
SLOW: dict[str, Callable[[], bytes]] = {
    "the last of many fields is repeated": lambda: (
        b"{" + b",".join(b'"%d":1' % number for number in range(FIELDS)) + b',"%d":1}' % (FIELDS - 1)
    ),
    "a string of escapes": lambda: b'["' + b'\\"' * 1_000_000 + b'" ]',
    "a number of many digits": lambda: b"[ " + b"1" * 1_000_000 + b"]",
    "numbers of many digits": lambda: b"[ " + b"1234567890123456789," * 100_000 + b"1]",
    "strings with brackets": lambda: b"[ " + b'"[{\\\\", ' * 200_000 + b"1]",
}


@pytest.mark.parametrize("name", SLOW)
def test_no_text_takes_much_longer_than_others_of_its_size(name: str) -> None:
    text = SLOW[name]()
    floor = _spent(lambda: json.loads(json.dumps([{"a": number} for number in range(len(text) // 10)])))
    assert _spent(lambda: canonical(text)) < 10 * floor


def _spent(work: Callable[[], object]) -> float:
    """Return the CPU time of work that may fail."""
    start = time.thread_time()
    with contextlib.suppress(DataError):
        work()
    return time.thread_time() - start
