"""Secret keys in files: those of internal listeners, and the write key of the Data Service."""

import hmac
import os
import pwd
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from diem.errors import ConfigurationError
from diem.process.private_files import create_private, open_unblocked

KEY_BYTES: Final = 32
MIN_CHARACTERS: Final = 16
MAX_CHARACTERS: Final = 4096


@dataclass(eq=False)
class BadKeyFile(ConfigurationError):
    """A key file is missing, is open to others, or has no valid key."""

    template = "key file {path}: {reason}"

    path: Path
    reason: str


def bearer_credential(header: str | None) -> str | None:
    """Return the credential in an ``Authorization`` header (RFC 6750 section 2.1); None for other schemes."""
    scheme, _, credential = (header or "").partition(" ")
    return credential.strip() if scheme.lower() == "bearer" else None


def foreign_owner(status: os.stat_result) -> str | None:
    """Return the name of a file's owner; None if it is this user or root, who may read everything anyway."""
    if status.st_uid in {0, os.geteuid()}:
        return None
    try:
        return pwd.getpwuid(status.st_uid).pw_name
    except KeyError:
        return str(status.st_uid)


def is_private(status: os.stat_result) -> bool:
    """Return whether a file is readable by this user, root and groups of this process only, and writable by no group.

    This admits secrets mounted by service managers: Kubernetes' belong to root and a group of the process
    (``fsGroup``), systemd's (``LoadCredential=``) to root and its group, with an access list for this user, whose mask
    shows as the group's mode.
    """
    if status.st_mode & 0o037:
        return False
    if not status.st_mode & 0o040:
        return True
    groups_of_root = {0} if status.st_uid == 0 else set[int]()
    return status.st_gid in {os.getegid(), *os.getgroups()} | groups_of_root


def shared_key_remedy(path: Path) -> str:
    """Return the remedy for a missing file that all machines of a system share."""
    return (
        "copy it from the state directory of the machine with the Data Service; a new system gets its keys from "
        f"`diem up`, or from `diem keys internal {path.parent}`"
    )


def read_private(path: Path, max_bytes: int, *, missing: str = "") -> bytes:
    """Return the first ``max_bytes`` of a file with a secret; ``missing`` is the remedy if it does not exist.

    Raises:
        BadKeyFile: it is unreadable, another user's, readable by others (:func:`is_private`), or not a regular file.
    """
    try:
        with open(path, "rb", opener=open_unblocked) as file:
            # The opened file is checked, not the path, which could be replaced in between.
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise BadKeyFile(path, "not a regular file")
            if owner := foreign_owner(status):
                raise BadKeyFile(path, f"it belongs to user {owner}, who may know the key: remove it, or chown it")
            if not is_private(status):
                reason = f"others may read it: run chmod 600 {path}, or mount the secret with mode 0440 and our group"
                raise BadKeyFile(path, reason)
            return file.read(max_bytes)
    except FileNotFoundError as error:
        raise BadKeyFile(path, f"{error.strerror}: {missing}" if missing else str(error.strerror)) from error
    except PermissionError as error:
        reason = f"{error.strerror} for user {os.geteuid()}: chown it, or mount the secret with mode 0440 and our group"
        raise BadKeyFile(path, reason) from error
    except OSError as error:
        raise BadKeyFile(path, error.strerror or str(error)) from error


def read_secret(path: Path) -> str:
    """Return the text of a file with a secret other than a key, such as a password, without surrounding blanks.

    Raises:
        BadKeyFile: as :func:`read_private`, or it is empty, longer than a key may be, or not UTF-8 text.
    """
    try:
        text = read_private(path, MAX_CHARACTERS + 2).decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise BadKeyFile(path, "it is not UTF-8 text") from error
    if not text:
        raise BadKeyFile(path, "it is empty")
    if len(text) > MAX_CHARACTERS:
        raise BadKeyFile(path, f"it has more than {MAX_CHARACTERS} characters")
    return text


class SharedKey:
    """A key known to both ends; it never appears in logs or error texts.

    Both ends of internal links prove possession of it (``diem.links.mutual_auth``); the write key is sent as a bearer
    token.
    """

    __slots__ = ("_header", "_key", "id")

    def __init__(self, key: str) -> None:
        self._key = key.encode("ascii")
        self._header = f"Bearer {key}"
        self.id = self.digest(b"diem key id")[:8].hex()
        """Public name of the key, from which it cannot be derived."""

    @classmethod
    def load(cls, path: Path, *, missing: str = "") -> Self:
        """Read a key from its file; ``missing`` is the remedy if it does not exist.

        Raises:
            BadKeyFile: it is unreadable, another user's, readable by others, or not a key.
        """
        return cls(check_key(path, read_private(path, MAX_CHARACTERS + 2, missing=missing)))

    @classmethod
    def create(cls, path: Path) -> Self:
        """Load the key, or create a random one in a file that only its owner may read.

        Processes that create it concurrently get the same key.
        """
        if not path.exists():
            create_private(path, f"{secrets.token_urlsafe(KEY_BYTES)}\n".encode("ascii"))
        return cls.load(path)

    @property
    def header(self) -> str:
        """Value of the ``Authorization`` header with this key."""
        return self._header

    def matches(self, header: str | None) -> bool:
        """Return whether an ``Authorization`` header has this key, in constant time for wrong keys."""
        given = bearer_credential(header) or ""
        return hmac.compare_digest(given.encode("utf-8", "replace"), self._key)

    def digest(self, data: bytes) -> bytes:
        """Return the HMAC-SHA256 of ``data`` under this key (RFC 2104)."""
        return hmac.digest(self._key, data, "sha256")

    def __repr__(self) -> str:
        return "SharedKey(...)"


def check_key(path: Path, content: bytes) -> str:
    """Return the key in a file's content.

    Raises:
        BadKeyFile: it is none.
    """
    try:
        key = content.decode("ascii").strip()
    except UnicodeDecodeError as error:
        raise BadKeyFile(path, "a key is ASCII text") from error
    if not MIN_CHARACTERS <= len(key) <= MAX_CHARACTERS or any(c.isspace() for c in key):
        raise BadKeyFile(path, f"a key has {MIN_CHARACTERS} to {MAX_CHARACTERS} characters and no blanks")
    return key
