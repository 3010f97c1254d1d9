"""Service links: variables injected by Kubernetes into every pod for the Services of its namespace; pure.

A Service named ``diem-data`` makes ``DIEM_DATA_SERVICE_HOST``, ``DIEM_DATA_PORT=tcp://10.0.0.1:8080`` and others, which
look like settings. They are recognised by name and value together, so as not to hide a misspelt setting.
"""

import re
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final

_URL: Final = re.compile(r"(tcp|udp|sctp)://\S+", re.IGNORECASE)
_URL_NAME: Final = re.compile(r".*_PORT(_\d{1,5}_(TCP|UDP|SCTP))?")
_PORT_NAME: Final = re.compile(r".*_(SERVICE_PORT(_\w+)?|PORT_\d{1,5}_(TCP|UDP|SCTP)_PORT)")
_HOST_NAME: Final = re.compile(r".*_(SERVICE_HOST|PORT_\d{1,5}_(TCP|UDP|SCTP)_ADDR)")
_PROTOCOL_NAME: Final = re.compile(r".*_PORT_\d{1,5}_(TCP|UDP|SCTP)_PROTO")


def is_service_link(name: str, value: str) -> bool:
    """Return whether a variable is of a service link.

    Args:
        name: in upper case.
        value: its text.
    """
    if _URL.fullmatch(value):
        return _URL_NAME.fullmatch(name) is not None
    if _PORT_NAME.fullmatch(name):
        return value.isascii() and value.isdecimal() and len(value) <= 5
    if _HOST_NAME.fullmatch(name):
        return _is_address(value)
    return _PROTOCOL_NAME.fullmatch(name) is not None and value.lower() in {"tcp", "udp", "sctp"}


def service_links(environ: Mapping[str, str], prefix: str) -> list[str]:
    """Return the names of the service links whose names begin with a prefix, sorted."""
    return sorted(name for name, value in environ.items() if name.startswith(prefix) and is_service_link(name, value))


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
