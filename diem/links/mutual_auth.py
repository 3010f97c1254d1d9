"""Mutual authentication of internal connections: both sides prove possession of a key without sending it; pure.

One exchange at the start of each connection, before the request (docs/adr/0013-mutual-authentication.md)::

    client                                                     listener
    GET /challenge: id of the key, nonce, address dialled  ->
                                                           <-  204: nonce, proof of the listener
    the request, with the proof of the client              ->
                                                           <-  its answer

Both sides also announce their versions of the internal protocol, not covered by the proofs: changing them on the way
can only prevent the connection. A proof is an HMAC-SHA256 under the key over the side, both nonces and the dialled
address; the client's also covers method and target of its request. Nonces are new for each connection, so a proof is
useless on another one.
"""

import hmac
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from pathlib import PurePath
from secrets import token_hex
from typing import Final

from diem.errors import DiemError
from diem.process.auth import SharedKey
from diem.protocol import compatibility
from diem.protocol.compatibility import OURS, Versions

SCHEME: Final = "DIEM-HMAC-SHA256"
"""Authentication scheme in ``Authorization`` and ``WWW-Authenticate`` (RFC 9110 section 11)."""
PATH: Final = "/challenge"
MAX_ANSWER_BYTES: Final = 4096
"""Longest answer of a listener to the challenge."""
OF_ANY_VERSION: Final = frozenset({"/metrics", "/status"})
"""Paths open to peers with incompatible versions of the internal protocol, for examining a mixed system."""
HEAD_END: Final = b"\r\n\r\n"
_CONTEXT: Final = "diem internal link 1"
"""Separates these HMACs from all others under the same key."""
_NONCE_BYTES: Final = 16
_NONCE: Final = re.compile(rf"[0-9a-f]{{{2 * _NONCE_BYTES}}}")
_PARAMETER: Final = re.compile(r'([a-z]+)="([\x20\x21\x23-\x5b\x5d-\x7e]{0,200})"')


@dataclass(eq=False)
class PeerNotAuthenticated(DiemError):
    """The answering peer has not proved the key."""

    template = "what answers at {address} did not prove that it has the key: {reason}"
    retriable = True

    address: str
    reason: str


@dataclass(eq=False)
class IncompatiblePeer(DiemError):
    """A peer has proved the key, but shares no version of the internal protocol with this process."""

    template = "{reason}"
    retriable = True

    versions: Versions
    reason: str


@dataclass(eq=False)
class ChallengeRefused(DiemError):
    """The listener cannot answer a challenge."""

    template = "{reason}"

    reason: str


def address_of(name: object) -> str:
    """Return the address of a socket in the form used by both ends.

    Args:
        name: result of ``getpeername`` or ``getsockname``.
    """
    if isinstance(name, tuple):
        host = ip_address(str(name[0]).partition("%")[0])
        if isinstance(host, IPv6Address):
            host = host.ipv4_mapped or host
        return f"{host}:{name[1]}" if host.version == 4 else f"[{host}]:{name[1]}"
    return f"unix:{PurePath(name if isinstance(name, str) else '').name}"


class DialerAuth:
    """The dialling side of one connection: call :meth:`challenge`, :meth:`verify`, then :meth:`authorization`.

    Args:
        key: the key.
        address: :func:`address_of` the peer.
    """

    __slots__ = ("_address", "_key", "_nonce", "_peer_nonce", "_peer_versions")

    def __init__(self, key: SharedKey, address: str) -> None:
        self._key = key
        self._address = address
        self._nonce = token_hex(_NONCE_BYTES)
        self._peer_nonce: str | None = None
        self._peer_versions = compatibility.UNANNOUNCED

    def challenge(self, host: str) -> bytes:
        """Return the first request; ``host`` is the value of its ``Host`` header."""
        given = f'keyid="{self._key.id}", nonce="{self._nonce}", address="{self._address}", {_announced()}'
        return f"GET {PATH} HTTP/1.1\r\nHost: {host}\r\nAuthorization: {SCHEME} {given}\r\n\r\n".encode("ascii")

    def verify(self, head: bytes) -> None:
        """Check the answer to the challenge, from the status line to the empty line.

        Raises:
            PeerNotAuthenticated: not the answer of a listener with the key.
        """
        status, *fields = head.removesuffix(HEAD_END).decode("latin-1").split("\r\n")
        if not re.fullmatch(r"HTTP/1\.1 204 .*", status):
            code = status[:40].split(" ")[1:2]
            text = f"HTTP {code[0]}" if code and code[0].isdigit() else "not an answer to a challenge"
            raise self._failed(f"{text}; it has another key, or does not know the address at which it was dialled")
        pairs = (field.partition(":") for field in fields)
        infos = [value.strip() for name, _, value in pairs if _is(name, "authentication-info")]
        given = _parameters(infos[0]) if len(infos) == 1 else {}
        nonce, proof = given.get("nonce", ""), given.get("proof", "")
        if not _NONCE.fullmatch(nonce):
            raise self._failed("no proof in its answer")
        if not hmac.compare_digest(proof, _proof(self._key, "listener", self._nonce, nonce, self._address)):
            raise self._failed("its proof is wrong")
        versions = compatibility.parse(given.get("protocol"))
        if versions is None:
            raise self._failed("the versions that it announces cannot be read")
        self._peer_nonce, self._peer_versions = nonce, versions

    def authorization(self, method: str, target: str) -> str:
        """Return the ``Authorization`` header of the request; only after :meth:`verify`.

        Raises:
            IncompatiblePeer: the listener shares no version with this process.
        """
        if self._peer_nonce is None:
            raise self._failed("it has not been verified")
        if not OURS.speaks_with(self._peer_versions) and target not in OF_ANY_VERSION:
            raise IncompatiblePeer(self._peer_versions, compatibility.remedy(self._peer_versions, self._address))
        proof = _proof(self._key, "client", self._nonce, self._peer_nonce, self._address, method, target)
        return f'{SCHEME} proof="{proof}"'

    def _failed(self, reason: str) -> PeerNotAuthenticated:
        return PeerNotAuthenticated(self._address, reason)


class ListenerAuth:
    """The listener's side of one connection, from a challenge to the request that follows it.

    Args:
        authorization: header of the challenge.
        find: returns the key with an id, or None.
        addresses: possible dialled addresses of the listener on this connection.

    Raises:
        ChallengeRefused: from the constructor: it is malformed, for another key, or for another address.
    """

    __slots__ = ("_address", "_nonce", "_peer_nonce", "key", "peer_versions")

    def __init__(self, authorization: str, find: Callable[[str], SharedKey | None], addresses: Collection[str]) -> None:
        scheme, _, rest = authorization.partition(" ")
        given = _parameters(rest) if _is(scheme, SCHEME) else {}
        if not _NONCE.fullmatch(given.get("nonce", "")):
            raise ChallengeRefused("not a challenge")
        key = find(given.get("keyid", ""))
        if key is None:
            raise ChallengeRefused("this listener does not have that key")
        if given.get("address") not in addresses:
            # The client talks to an intermediary that relays its data, or addresses are translated.
            raise ChallengeRefused("this listener is not at the address dialled (DIEM_INTERNAL_ADDRESSES)")
        versions = compatibility.parse(given.get("protocol"))
        if versions is None:
            raise ChallengeRefused("the versions that are announced cannot be read")
        self.key = key
        self.peer_versions = versions
        """Those of the internal protocol that the client speaks."""
        self._address = given["address"]
        self._peer_nonce = given["nonce"]
        self._nonce: str | None = token_hex(_NONCE_BYTES)

    def answer(self) -> bytes:
        """Return the answer to the challenge."""
        proof = _proof(self.key, "listener", self._peer_nonce, self._nonce or "", self._address)
        info = f'Authentication-Info: nonce="{self._nonce}", proof="{proof}", {_announced()}'
        return f"HTTP/1.1 204 No Content\r\n{info}\r\nCache-Control: no-store\r\n\r\n".encode("ascii")

    def verify(self, authorization: str, method: str, target: str) -> bool:
        """Return whether a request carries the client's proof; only the first call can return True."""
        nonce, self._nonce = self._nonce, None
        scheme, _, rest = authorization.partition(" ")
        if nonce is None or not _is(scheme, SCHEME):
            return False
        proof = _proof(self.key, "client", self._peer_nonce, nonce, self._address, method, target)
        return hmac.compare_digest(_parameters(rest).get("proof", ""), proof)


def _proof(key: SharedKey, *parts: str) -> str:
    """Return the proof over a side, the nonces of client and listener, the address, and the client's request."""
    # None of the parts can contain the separator.
    return key.digest("\n".join((_CONTEXT, *parts)).encode("latin-1")).hex()


def _announced() -> str:
    # A parameter that earlier releases ignore.
    return f'protocol="{OURS.announcement}"'


def _parameters(text: str) -> dict[str, str]:
    """Return the parameters of a header; empty if they are malformed or not ASCII."""
    if not text.isascii():
        return {}
    matches = [_PARAMETER.fullmatch(part) for part in text.split(", ")]
    found = {match[1]: match[2] for match in matches if match}
    return found if len(found) == len(matches) else {}


def _is(name: str, expected: str) -> bool:
    return name.lower() == expected.lower()
