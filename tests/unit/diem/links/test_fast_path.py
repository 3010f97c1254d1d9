import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from diem.links.fast_path import MAX_REMEMBERED_BYTES, FastAnswer, Renderer, parse

HEAD = b"GET /v1/data/a?version=1 HTTP/1.1\r\nHost: x\r\nAccept:application/json \r\nX-Empty:\r\n\r\n"


def test_a_plain_request_is_parsed() -> None:
    head = parse(HEAD)
    assert head is not None
    assert (head.method, head.target) == ("GET", b"/v1/data/a?version=1")
    assert head.fields == {"host": "x", "accept": "application/json", "x-empty": ""}
    head = parse(HEAD.replace(b"GET", b"HEAD").replace(b"X-Empty:", b"Connection: Keep-Alive"))
    assert head is not None
    assert head.method == "HEAD"


def test_a_request_of_usual_length_is_parsed_once() -> None:
    assert parse(bytes(bytearray(HEAD))) is parse(bytes(bytearray(HEAD)))
    long = HEAD.replace(b"X-Empty:", b"X: " + b"a" * MAX_REMEMBERED_BYTES)
    assert parse(long) == parse(bytes(bytearray(long)))
    assert parse(long) is not parse(long)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(HEAD[:-1], id="incomplete"),
        pytest.param(HEAD + HEAD, id="pipelined"),
        pytest.param(HEAD + b"x", id="more data"),
        pytest.param(HEAD.replace(b"GET", b"PUT"), id="a write"),
        pytest.param(HEAD.replace(b"HTTP/1.1", b"HTTP/1.0"), id="HTTP/1.0"),
        pytest.param(HEAD.replace(b"Host: x\r\n", b""), id="no Host"),
        pytest.param(HEAD.replace(b"X-Empty", b"HOST"), id="two Hosts"),
        pytest.param(HEAD.replace(b"X-Empty", b"Accept"), id="a field twice"),
        pytest.param(HEAD.replace(b"X-Empty:", b"Content-Length: 0"), id="a body"),
        pytest.param(HEAD.replace(b"X-Empty:", b"Transfer-Encoding: chunked"), id="chunks"),
        pytest.param(HEAD.replace(b"X-Empty:", b"Expect: 100-continue"), id="expectation"),
        pytest.param(HEAD.replace(b"X-Empty:", b"Upgrade: websocket"), id="upgrade"),
        pytest.param(HEAD.replace(b"X-Empty:", b"Connection: close"), id="to be closed"),
        pytest.param(HEAD.replace(b"X-Empty:", b"Connection: Upgrade"), id="connection upgrade"),
        pytest.param(HEAD.replace(b"X-Empty:", b"X-Empty : 1"), id="a blank before the colon"),
        pytest.param(HEAD.replace(b"X-Empty:", b" folded"), id="a folded line"),
        pytest.param(HEAD.replace(b"X-Empty:", b"X: \xc3\xa9"), id="not ASCII"),
        pytest.param(HEAD.replace(b"X-Empty:", b"X: a\rb"), id="a bare CR"),
        pytest.param(HEAD.replace(b"X-Empty:", b"X: a\nb: c"), id="a bare LF"),
        pytest.param(HEAD.replace(b"X-Empty:", b"X: " + b"a" * 16384), id="too long"),
        pytest.param(HEAD.replace(b"/v1", b"http://x/v1"), id="absolute target"),
    ],
)
def test_everything_unusual_is_left_to_the_library(data: bytes) -> None:
    assert parse(data) is None


PIECES = st.sampled_from(
    [
        *(b"GET ", b"HEAD ", b"/a", b" HTTP/1.1\r\n", b"Host: x\r\n", b"Accept: */*\r\n", b"A: b\r\n"),
        *(b"\r\n", b"\n", b"\r", b" ", b"\t", b":", b"\x00", b"\xff"),
        *(b"Content-Length: 3\r\n", b"Connection: close\r\n", b"Transfer-Encoding: chunked\r\n"),
    ]
)


@given(st.lists(PIECES, max_size=12).map(b"".join))
@example(HEAD)
def test_what_is_parsed_is_what_the_library_parses_and_one_request(data: bytes) -> None:
    head = parse(data)
    if head is None:
        return
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(data)
    request = connection.next_event()
    assert isinstance(request, h11.Request)
    assert (request.method.decode(), request.target) == (head.method, head.target)
    assert {name.decode(): value.decode() for name, value in request.headers} == head.fields
    assert isinstance(connection.next_event(), h11.EndOfMessage)
    assert not connection.trailing_data[0]
    assert connection.their_state is h11.DONE


def test_an_answer_has_the_fields_of_the_server_and_its_own() -> None:
    render, answer = Renderer(), FastAnswer(304, b'etag: "1"\r\n', b"")
    for day in (b"today", b"tomorrow"):
        expected = b'HTTP/1.1 304 Not Modified\r\ndate: %s\r\netag: "1"\r\n\r\n' % day
        fields = [(b"date", day)]
        assert [render(answer, fields), render(answer, fields)] == [expected, expected]
