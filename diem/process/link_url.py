"""Setting type for the URL of another process of the system; rejects wrong ones before anything is sent."""

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator


def check_link_url(text: str) -> str:
    """Return the URL of an internal link.

    Raises:
        ValueError: it is not ``ws://host:port/path``. Links have no TLS of their own: the shared key would go out in
            the clear to whoever was thought to have it.
    """
    try:
        parts = urlsplit(text)
        complete = bool((parts.hostname or "").encode("idna")) and parts.port != 0
    except ValueError:
        complete = False
    else:
        complete = complete and parts.scheme == "ws" and "@" not in parts.netloc and not parts.fragment
    if not complete or not text.isascii() or any(c.isspace() for c in text):
        raise ValueError(f"a link goes to ws://host:port/path, not {text!r}")
    return text


LinkUrl = Annotated[str, AfterValidator(check_link_url)]
"""The type of such a setting."""
