"""The container of a backup: a stream in chunks, each one authenticated and optionally encrypted.

    diem.backup/2 LF
    {"key":"file","encrypted":false,"salt":"..."} LF
    HMAC-SHA256 of these two lines (32 bytes)
    chunks of 64 KiB, the last one of 1 byte to 64 KiB, each followed by its tag

The chunks form a STREAM (Hoang, Reyhanitabar, Rogaway, Vizár, 2015): the tag of each one covers its number and whether
it is the last, under keys of this file alone. So a reader processes only authentic bytes, in constant memory, and a
changed, missing, added, moved or foreign chunk is detected. The tag is an HMAC-SHA256 over position and content, or
that of ChaCha20-Poly1305 (RFC 8439) with the position as its nonce.

Both keys of a file are derived by HKDF-SHA256 (RFC 5869) with its random salt and its first two lines from the HMAC of
a key file, or from a passphrase by scrypt (RFC 7914).
"""

import base64
import hashlib
import hmac
import io
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from diem.errors import ConfigurationError
from diem.process.auth import SharedKey, read_private
from services.data.backup.errors import BadBackup

FORMAT: Final = "diem.backup/2"
CHUNK_BYTES: Final = 64 * 1024
MIN_PASSPHRASE: Final = 12
MAX_PASSPHRASE: Final = 1024
"""Bytes of a passphrase, without white space around it."""

_MAGIC: Final = FORMAT.encode() + b"\n"
_GZIP_MAGIC: Final = b"\x1f\x8b"
"""First bytes of a backup of a release that did not authenticate backups."""
_MAX_HEAD_BYTES: Final = 256
_SALT_BYTES: Final = 32
_KEY_BYTES: Final = 32
_TAG_BYTES: Final = 32
# Recommended by OWASP's Password Storage Cheat Sheet: 128 MiB and a third of a second. Not in the file, which could
# ask for any amount of memory.
_SCRYPT: Final = {"n": 2**17, "r": 8, "p": 1, "maxmem": 2**28}
_HEAD: Final = re.compile(rb'\{"key":"(file|passphrase)","encrypted":(true|false),"salt":"([A-Za-z0-9+/]{43}=)"\}')


@dataclass(frozen=True, repr=False)
class BackupKey:
    """The secret that a backup is made and verified with; it never appears in logs and error texts."""

    secret: bytes
    is_passphrase: bool = False

    @classmethod
    def of_file(cls, path: Path) -> "BackupKey":
        """Return the key of a key file. Raises BadKeyFile."""
        return cls(SharedKey.load(path).digest(_MAGIC))

    @classmethod
    def of_passphrase_file(cls, path: Path) -> "BackupKey":
        """Return the passphrase in a file; white space around it is ignored.

        Raises:
            BadKeyFile: the file is unreadable, another user's, or readable by others.
            ConfigurationError: the passphrase is too short or too long.
        """
        passphrase = read_private(path, MAX_PASSPHRASE + 3).strip()
        if not MIN_PASSPHRASE <= len(passphrase) <= MAX_PASSPHRASE:
            raise ConfigurationError(f"{path}: a passphrase has {MIN_PASSPHRASE} to {MAX_PASSPHRASE} bytes")
        return cls(passphrase, is_passphrase=True)


@dataclass(frozen=True, slots=True)
class RestoreKeys:
    """Files of keys that a backup may need, and whether one may be restored without verification."""

    key_file: Path
    passphrase_file: Path | None = None
    unauthenticated: bool = False


class _Head(NamedTuple):
    """How a container is sealed; ``text`` is its first two lines."""

    text: bytes
    passphrase: bool
    encrypted: bool
    salt: bytes


class _Opener(Protocol):
    tag_bytes: int

    def open(self, position: bytes, sealed: bytes, /) -> bytes | None:
        """Return the content of a stored chunk; None if its tag is wrong."""
        ...


class _Seal(_Opener, Protocol):
    def seal(self, position: bytes, chunk: bytes, /) -> bytes:
        """Return the chunk as stored, with its tag. ``position``: 12 bytes, never used twice."""
        ...


class _Authenticated:
    """Chunks in the clear."""

    tag_bytes = _TAG_BYTES

    def __init__(self, key: bytes) -> None:
        self._key = key

    def seal(self, position: bytes, chunk: bytes) -> bytes:
        return chunk + hmac.digest(self._key, position + chunk, "sha256")

    def open(self, position: bytes, sealed: bytes) -> bytes | None:
        chunk, tag = sealed[:-_TAG_BYTES], sealed[-_TAG_BYTES:]
        return chunk if hmac.compare_digest(hmac.digest(self._key, position + chunk, "sha256"), tag) else None


class _Unverified:
    """Chunks in the clear whose tags are ignored."""

    tag_bytes = _TAG_BYTES

    def open(self, _position: bytes, sealed: bytes) -> bytes | None:
        return sealed[:-_TAG_BYTES]


class _Encrypted:
    tag_bytes = 16

    def __init__(self, key: bytes) -> None:
        self._cipher = ChaCha20Poly1305(key)

    def seal(self, position: bytes, chunk: bytes) -> bytes:
        return self._cipher.encrypt(position, chunk, None)

    def open(self, position: bytes, sealed: bytes) -> bytes | None:
        try:
            return self._cipher.decrypt(position, sealed, None)
        except InvalidTag:
            return None


class SealedWriter:
    """Writes a container to a binary file, which stays open; complete only after :meth:`finish`.

    Raises:
        OSError: from every method, for example when the disk is full.
    """

    def __init__(self, file: BinaryIO, key: BackupKey, *, encrypt: bool) -> None:
        self._file = file
        self._pending = bytearray()
        self._number = 0
        salt = secrets.token_bytes(_SALT_BYTES)
        head = _MAGIC + b'{"key":"%s","encrypted":%s,"salt":"%s"}\n' % (
            b"passphrase" if key.is_passphrase else b"file",
            b"true" if encrypt else b"false",
            base64.b64encode(salt),
        )
        head_key, chunk_key = _derive(key, salt, head)
        self._seal: _Seal = _Encrypted(chunk_key) if encrypt else _Authenticated(chunk_key)
        file.write(head + hmac.digest(head_key, head, "sha256"))

    def write(self, data: bytes) -> int:
        """Append content; all but the last 64 KiB is written."""
        self._pending += data
        # Strictly more: the last chunk is sealed as such, and known only at the end.
        while len(self._pending) > CHUNK_BYTES:
            self._write_chunk(last=False)
        return len(data)

    def flush(self) -> None:
        """Do nothing: chunks have a fixed size."""

    def finish(self) -> None:
        """Write the last chunk."""
        self._write_chunk(last=True)

    def _write_chunk(self, *, last: bool) -> None:
        chunk = bytes(self._pending[:CHUNK_BYTES])
        del self._pending[:CHUNK_BYTES]
        self._file.write(self._seal.seal(_position(self._number, last=last), chunk))
        self._number += 1


class SealedReader(io.RawIOBase):
    """The content of a container as a stream of verified bytes.

    Raises:
        BadBackup: from reading, when a chunk was changed, moved, added, or is missing.
    """

    def __init__(self, path: Path, file: BinaryIO, seal: _Opener) -> None:
        super().__init__()
        self._path = path
        self._file = file
        self._seal = seal
        self._stored_bytes = CHUNK_BYTES + seal.tag_bytes
        self._number = 0
        self._next = file.read(self._stored_bytes)
        self._chunk = memoryview(b"")
        self._is_done = False

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: "memoryview | bytearray") -> int:  # type: ignore[override]
        """Fill ``buffer`` with the next bytes; return their number, 0 at the end."""
        if not self._chunk:
            if self._is_done:
                return 0
            self._chunk = memoryview(self._read_chunk())
        count = min(len(buffer), len(self._chunk))
        buffer[:count] = self._chunk[:count]
        self._chunk = self._chunk[count:]
        return count

    def _read_chunk(self) -> bytes:
        sealed, self._next = self._next, self._file.read(self._stored_bytes)
        last = self._is_done = not self._next
        chunk = None
        if len(sealed) > self._seal.tag_bytes:
            chunk = self._seal.open(_position(self._number, last=last), sealed)
        if chunk is None:
            begin = self._number * CHUNK_BYTES
            raise BadBackup(self._path, f"it was changed or cut after {begin} bytes of content")
        self._number += 1
        return chunk


def unsealed(path: Path, file: BinaryIO, keys: RestoreKeys) -> Callable[[], BinaryIO]:
    """Return a function that opens the content of a backup from its beginning, each time anew; ``file`` stays open.

    Raises:
        BadBackup: it is no backup, was made with another key, or has no seal and must have one.
        BadKeyFile, ConfigurationError: the key that it needs cannot be used.
    """
    start = file.read(len(_MAGIC))
    if start.startswith(_GZIP_MAGIC):
        if not keys.unauthenticated:
            reason = (
                "it was made by a release that did not authenticate backups; "
                "add --unauthenticated if you are sure that nobody has changed it"
            )
            raise BadBackup(path, reason)
        return lambda: _from(file, 0)
    if start != _MAGIC:
        raise BadBackup(path, "it is not a backup of DIEM")
    head = _read_head(path, file)
    seal = _seal_of(path, head, file.read(_TAG_BYTES), keys)
    begin = file.tell()
    return lambda: io.BufferedReader(SealedReader(path, _from(file, begin), seal), CHUNK_BYTES)


def _from(file: BinaryIO, position: int) -> BinaryIO:
    file.seek(position)
    return file


def _read_head(path: Path, file: BinaryIO) -> _Head:
    line = file.readline(_MAX_HEAD_BYTES)
    match = _HEAD.fullmatch(line.removesuffix(b"\n"))
    if match is None:
        raise BadBackup(path, "its beginning was changed, or it was made by a later release")
    kind, encrypted, salt = match.groups()
    return _Head(_MAGIC + line, kind == b"passphrase", encrypted == b"true", base64.b64decode(salt))


def _seal_of(path: Path, head: _Head, tag: bytes, keys: RestoreKeys) -> _Opener:
    if keys.unauthenticated:
        if head.encrypted:
            raise BadBackup(path, "it is encrypted: without its key it cannot be read")
        return _Unverified()
    if head.passphrase:
        if keys.passphrase_file is None:
            raise BadBackup(path, "it is encrypted with a passphrase: give --passphrase-file")
        key = BackupKey.of_passphrase_file(keys.passphrase_file)
    else:
        key = BackupKey.of_file(keys.key_file)
    head_key, chunk_key = _derive(key, head.salt, head.text)
    if not hmac.compare_digest(hmac.digest(head_key, head.text, "sha256"), tag):
        raise BadBackup(path, f"it was not made with this {'passphrase' if key.is_passphrase else 'key'}")
    return _Encrypted(chunk_key) if head.encrypted else _Authenticated(chunk_key)


def _derive(key: BackupKey, salt: bytes, head: bytes) -> tuple[bytes, bytes]:
    """Return the keys of the head's and of the chunks' tags."""
    secret = hashlib.scrypt(key.secret, salt=salt, dklen=_KEY_BYTES, **_SCRYPT) if key.is_passphrase else key.secret
    derived = HKDF(SHA256(), 2 * _KEY_BYTES, salt, head).derive(secret)
    return derived[:_KEY_BYTES], derived[_KEY_BYTES:]


def _position(number: int, *, last: bool) -> bytes:
    return number.to_bytes(11) + bytes([last])
