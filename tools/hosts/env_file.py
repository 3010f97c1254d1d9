"""Files of environment variables for systemd (``EnvironmentFile=`` in systemd.exec(5)); pure."""

import re
from collections.abc import Mapping
from typing import Final

from deploy.topology import BadTopology

_PLAIN: Final = re.compile(r"[A-Za-z0-9_./:,@%+=-]*")
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)")


def render(variables: Mapping[str, str], *comments: str) -> str:
    """Return the file with a line for each variable, after the comments.

    Raises:
        BadTopology: a value has a control character.
    """
    lines = [f"# {comment}" for comment in comments]
    for name, value in variables.items():
        if any(ord(character) < 32 or ord(character) == 127 for character in value):
            raise BadTopology(f"{name}: a file of variables takes no control characters: {value!r}")
        lines.append(f"{name}={_quoted(value)}")
    return "\n".join(lines) + "\n"


def parse(text: str) -> dict[str, str]:
    """Return the variables of a file: comments, and plain or quoted values, in the form of :func:`render`.

    Raises:
        ValueError: a line is of another form.
    """
    found = {}
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith(("#", ";")):
            continue
        match = _ASSIGNMENT.fullmatch(line.strip())
        if match is None:
            raise ValueError(f"not NAME=VALUE: {line!r}")
        found[match[1]] = _unquoted(match[2].strip())
    return found


def _quoted(value: str) -> str:
    if _PLAIN.fullmatch(value):
        return value
    if "'" not in value:
        return f"'{value}'"
    escaped = re.sub(r'(["\\`$])', r"\\\1", value)
    return f'"{escaped}"'


def _unquoted(text: str) -> str:
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1]
    if len(text) > 1 and text[0] == text[-1] == '"':
        return re.sub(r'\\(["\\`$])', r"\1", text[1:-1])
    return re.sub(r"\\(.)", r"\1", text)
