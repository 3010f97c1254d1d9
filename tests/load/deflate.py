"""Compression of messages (permessage-deflate, RFC 7692) as browsers have it, for load clients that offer it.

Only ``zlib`` is shared with the servers: frames are decompressed as the RFC says, whatever blocks they consist of.
"""

import zlib
from functools import lru_cache
from typing import Final

from tests.load.wire import COMPRESSED_TEXT, TEXT, WireError, server_frame

OFFER: Final = "permessage-deflate; client_max_window_bits"
"""The offer of Chromium and Firefox."""
_NAME: Final = "permessage-deflate"
_MAX_BITS: Final = 15
_FLUSH_MARK: Final = b"\x00\x00\xff\xff"
"""End of each flush, which senders leave out (section 7.2.1)."""
_COMPRESSED_BYTE: Final = 0x80 | COMPRESSED_TEXT


class Deflate:
    """What was agreed for one connection, in both directions. No message may refer to the one before it."""

    def __init__(self, answer: str) -> None:
        """Read the server's answer to :data:`OFFER`. Raises ``WireError`` if it is no valid one, or keeps a context."""
        name, *parameters = (part.strip() for part in answer.split(";"))
        agreed = {key.strip(): value.strip() for key, _, value in (part.partition("=") for part in parameters)}
        if name != _NAME or len(agreed) != len(parameters) or "server_no_context_takeover" not in agreed:
            raise WireError(f"extension {answer!r}")
        self.frames = 0
        """Number of compressed frames that were read."""
        self._client_bits = int(agreed.get("client_max_window_bits") or _MAX_BITS)
        self._server_bits = int(agreed.get("server_max_window_bits") or _MAX_BITS)

    def compress(self, payload: bytes) -> bytes:
        """Return the payload of a compressed frame."""
        compressor = zlib.compressobj(wbits=-self._client_bits)
        return (compressor.compress(payload) + compressor.flush(zlib.Z_SYNC_FLUSH)).removesuffix(_FLUSH_MARK)

    def plain(self, data: bytes) -> tuple[bytes, bytes]:
        """Return the whole frames in ``data``, decompressed, and the beginning of an incomplete one.

        Raises ``WireError`` for a frame that cannot be decompressed, or is masked.
        """
        parts, start, copied, size = [], 0, 0, len(data)
        while start + 2 <= size:
            length = data[start + 1]
            if length > 127:
                raise WireError("a masked frame from the server")
            payload = start + (2 if length < 126 else 4 if length == 126 else 10)
            if payload > size:
                break
            if length >= 126:
                length = int.from_bytes(data[start + 2 : payload], "big")
            end = payload + length
            if end > size:
                break
            if data[start] == _COMPRESSED_BYTE:
                self.frames += 1
                parts += [data[copied:start], server_frame(decompressed(data[payload:end], self._server_bits), TEXT)]
                copied = end
            start = end
        parts.append(data[copied:start])
        return b"".join(parts), data[start:]


# Every client that is sent an update gets the same bytes: they are decompressed once.
@lru_cache(maxsize=1024)
def decompressed(payload: bytes, window_bits: int) -> bytes:
    """Return a compressed payload decompressed. Raises ``WireError`` if it is damaged or refers to earlier ones."""
    try:
        return zlib.decompressobj(-window_bits).decompress(payload + _FLUSH_MARK)
    except zlib.error as error:
        raise WireError(f"compressed frame: {error}") from error
