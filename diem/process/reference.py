"""The reference of every setting, made from the models themselves: what `diem config` prints."""

import json
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from diem.process.settings import ProcessSettings, is_collection, members, variable


class Setting(NamedTuple):
    """One row of the settings reference."""

    variable: str
    type: str
    default: str
    description: str


def reference(model: type[ProcessSettings], *, shared: bool = True) -> list[Setting]:
    """List every setting of `model` in the order of declaration, with or without the shared ones."""
    return [
        Setting(variable(model, name), _type_name(field), _default(field), field.description or "")
        for name, field in model.model_fields.items()
        if shared or name not in ProcessSettings.model_fields
    ]


def _type_name(field: FieldInfo) -> str:
    names: list[str] = []
    for part in members(field.annotation):
        if get_origin(part) is Literal:
            names.extend(str(choice) for choice in get_args(part))
        elif part is type(None):
            names.append("unset")
        elif is_collection(part):
            names.append("JSON")
        else:
            names.append(_PLAIN_NAMES.get(part, part.__name__))
    return " | ".join(names)


_PLAIN_NAMES: dict[Any, str] = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "true | false",
    Path: "path",
    SecretStr: "secret",
}


def _default(field: FieldInfo) -> str:
    extra = field.json_schema_extra
    if isinstance(extra, dict) and "shown_default" in extra:
        return str(extra["shown_default"])
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=False)
    if default is None:
        return "unset"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, (tuple, list, set, frozenset, dict)):
        return json.dumps(default if isinstance(default, (dict, list)) else sorted(map(str, default)), default=str)
    return "set" if isinstance(default, SecretStr) else str(default)
