"""Proofs of a key: what one side accepts, and that a proof is worth nothing anywhere else."""

import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diem.links.mutual_auth import (
    SCHEME,
    ChallengeRefused,
    DialerAuth,
    IncompatiblePeer,
    ListenerAuth,
    PeerNotAuthenticated,
    address_of,
)
from diem.process.auth import SharedKey
from diem.protocol.compatibility import OURS, UNANNOUNCED, Versions

KEY, OTHER = SharedKey("0123456789abcdef"), SharedKey("fedcba9876543210")
HERE, THERE = "127.0.0.1:9101", "127.0.0.1:9102"


def header(request: bytes) -> str:
    (line,) = [line for line in request.decode().split("\r\n") if line.startswith("Authorization: ")]
    return line.partition(": ")[2]


def listener(request: bytes, *addresses: str, key: SharedKey = KEY) -> ListenerAuth:
    return ListenerAuth(header(request), {key.id: key}.get, addresses or (HERE,))


def authenticated() -> tuple[DialerAuth, ListenerAuth]:
    client = DialerAuth(KEY, HERE)
    server = listener(client.challenge("h"))
    client.verify(server.answer())
    return client, server


def test_both_sides_prove_the_key_and_neither_sends_it() -> None:
    client = DialerAuth(KEY, HERE)
    challenge = client.challenge("h:1")
    server = listener(challenge)
    answer = server.answer()
    client.verify(answer)
    proof = client.authorization("GET", "/feed")
    assert server.verify(proof, "GET", "/feed")
    assert "0123456789abcdef" not in f"{challenge!r}{answer!r}{proof}".replace(KEY.id, "")


def test_a_proof_counts_once_and_only_for_its_request() -> None:
    for method, target, accepted in (("GET", "/feed", True), ("GET", "/feed?x", False), ("POST", "/feed", False)):
        client, server = authenticated()
        proof = client.authorization("GET", "/feed")
        assert server.verify(proof, method, target) is accepted
        assert not server.verify(proof, "GET", "/feed")


def test_a_proof_of_one_connection_is_worth_nothing_on_another() -> None:
    client, _ = authenticated()
    _, server = authenticated()
    assert not server.verify(client.authorization("GET", "/feed"), "GET", "/feed")


def test_the_answer_to_one_client_does_not_satisfy_another() -> None:
    first, second = DialerAuth(KEY, HERE), DialerAuth(KEY, HERE)
    answer = listener(first.challenge("h")).answer()
    with pytest.raises(PeerNotAuthenticated, match="its proof is wrong"):
        second.verify(answer)


def test_a_challenge_for_another_address_is_refused() -> None:
    """As when somebody who is dialled there passes on what the client sends."""
    challenge = DialerAuth(KEY, THERE).challenge("h")
    with pytest.raises(ChallengeRefused, match="DIEM_INTERNAL_ADDRESSES"):
        listener(challenge, HERE)
    assert listener(challenge, HERE, THERE).answer().startswith(b"HTTP/1.1 204 ")


def test_a_proof_of_the_listener_is_none_of_the_client() -> None:
    client, server = authenticated()
    proof = server.answer().decode().partition("proof=")[2].partition('"')[2].partition('"')[0]
    assert not server.verify(f'{SCHEME} proof="{proof}"', "GET", "/feed")
    with pytest.raises(PeerNotAuthenticated):
        DialerAuth(KEY, HERE).authorization("GET", "/feed")
    assert client.authorization("GET", "/feed")


def test_another_key_is_refused_by_both_sides() -> None:
    client = DialerAuth(KEY, HERE)
    with pytest.raises(ChallengeRefused, match="does not have that key"):
        listener(client.challenge("h"), key=OTHER)
    pretended = ListenerAuth(header(client.challenge("h")), lambda _id: OTHER, {HERE})
    with pytest.raises(PeerNotAuthenticated, match="its proof is wrong"):
        client.verify(pretended.answer())


@pytest.mark.parametrize(
    "answer",
    [
        "HTTP/1.1 401 Unauthorized\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 204 No Content\r\n\r\n",
        'HTTP/1.1 204 No Content\r\nAuthentication-Info: nonce="00", proof="00"\r\n\r\n',
        f'HTTP/1.1 204 No Content\r\nAuthentication-Info: nonce="{"0" * 32}", proof="{"0" * 64}"\r\n\r\n',
        f'HTTP/1.1 204 No Content\r\nAuthentication-Info: nonce="{"0" * 32}", proof="é"\r\n\r\n',
        "SSH-2.0-OpenSSH_9.6\r\n\r\n",
        "\r\n\r\n",
    ],
)
def test_anything_but_a_right_proof_is_not_believed(answer: str) -> None:
    with pytest.raises(PeerNotAuthenticated) as failed:
        DialerAuth(KEY, HERE).verify(answer.encode("latin-1"))
    assert HERE in str(failed.value)


@pytest.mark.parametrize(
    "authorization", ["", "Bearer 0123456789abcdef", SCHEME, f'{SCHEME} nonce="00"', f'{SCHEME} keyid="{KEY.id}"']
)
def test_a_malformed_challenge_is_refused(authorization: str) -> None:
    with pytest.raises(ChallengeRefused, match="not a challenge"):
        ListenerAuth(authorization, lambda _id: KEY, {HERE})


@given(st.text(max_size=200))
def test_any_text_is_refused_and_breaks_nothing(text: str) -> None:
    with pytest.raises(ChallengeRefused):
        ListenerAuth(f"{SCHEME} {text}", lambda _id: KEY, {HERE})
    assert not authenticated()[1].verify(f"{SCHEME} {text}", "GET", "/feed")
    with pytest.raises(PeerNotAuthenticated):
        DialerAuth(KEY, HERE).verify(text.encode())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (("127.0.0.1", 80), "127.0.0.1:80"),
        (("::ffff:10.0.0.1", 80, 0, 0), "10.0.0.1:80"),
        (("fe80::1%eth0", 80, 0, 2), "[fe80::1]:80"),
        ("/run/diem/9101.sock", "unix:9101.sock"),
        (None, "unix:"),
    ],
)
def test_an_address_has_one_form(name: object, expected: str) -> None:
    assert address_of(name) == expected


def test_both_ends_of_a_connection_have_one_address(tmp_path: Path) -> None:
    for family, bound in ((socket.AF_INET, ("127.0.0.1", 0)), (socket.AF_UNIX, str(tmp_path / "1.sock"))):
        with socket.socket(family) as server, socket.socket(family) as client:
            server.bind(bound)
            server.listen()
            client.connect(server.getsockname())
            with server.accept()[0] as accepted:
                assert address_of(accepted.getsockname()) == address_of(client.getpeername())


ANNOUNCED = f', protocol="{OURS.announcement}"'


def announcing(message: bytes, announced: str) -> bytes:
    """Return a challenge or an answer as a release with another announcement sends it."""
    assert message.count(ANNOUNCED.encode()) == 1
    return message.replace(ANNOUNCED.encode(), announced.encode())


def test_a_client_that_announces_nothing_is_of_version_1() -> None:
    client = DialerAuth(KEY, HERE)
    server = listener(announcing(client.challenge("h"), ""))
    assert server.peer_versions == UNANNOUNCED
    client.verify(server.answer())
    assert server.verify(client.authorization("GET", "/feed"), "GET", "/feed")


def test_a_listener_that_announces_nothing_is_spoken_with() -> None:
    client = DialerAuth(KEY, HERE)
    server = listener(client.challenge("h"))
    client.verify(announcing(server.answer(), ""))
    assert server.verify(client.authorization("GET", "/feed"), "GET", "/feed")


def test_a_listener_without_a_version_in_common_gets_no_request_but_those_of_any_version() -> None:
    client = DialerAuth(KEY, HERE)
    later = Versions(OURS.newest + 1, OURS.newest + 2)
    server = listener(client.challenge("h"))
    client.verify(announcing(server.answer(), f', protocol="{later.announcement}"'))
    with pytest.raises(IncompatiblePeer, match="replace this process first") as refused:
        client.authorization("GET", "/feed")
    assert refused.value.versions == later
    assert server.verify(client.authorization("GET", "/status"), "GET", "/status")


def test_an_announcement_that_cannot_be_read_is_refused_by_both_sides() -> None:
    client = DialerAuth(KEY, HERE)
    challenge = client.challenge("h")
    with pytest.raises(ChallengeRefused, match="versions"):
        listener(announcing(challenge, ', protocol="two"'))
    with pytest.raises(PeerNotAuthenticated, match="versions"):
        client.verify(announcing(listener(challenge).answer(), ', protocol="2-1"'))


def test_parameters_of_later_releases_are_ignored() -> None:
    client = DialerAuth(KEY, HERE)
    more = f'{ANNOUNCED}, later="x"'
    server = listener(announcing(client.challenge("h"), more))
    client.verify(announcing(server.answer(), more))
    assert server.verify(client.authorization("GET", "/feed"), "GET", "/feed")
