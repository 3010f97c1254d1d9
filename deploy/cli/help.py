"""The help of ``diem``: the parser's own, with the commands in groups by what one wants to do."""

from collections.abc import Mapping
from typing import Any, Final

from typer.core import TyperGroup

GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "Run a system": ("up", "status", "scale", "run", "config"),
    "Read and write data": ("watch", "get", "put", "delete", "sources"),
    "Operate it": ("keys", "tokens", "backup", "restore", "metrics", "load", "canary"),
    "Choose its size, and check Kafka": ("recommend", "size", "check", "topics"),
    "Learn a placement from traffic": ("pipeline", "plan", "apply", "rollback", "plans", "autoplan"),
}
"""The commands of each group, in the order of the help; those of other packages are in a last one."""


class CommandGroups(TyperGroup):
    """All commands in groups, or those of one of them."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401  # their types are private
        """Write the commands of each group with the first sentence of their help, as the base class does for all."""
        named = {name for names in GROUPS.values() for name in names}
        others = [name for name in self.list_commands(ctx) if name not in named]
        title_of_others = "Commands" if ctx.parent else "Other commands"
        for title, names in {**GROUPS, title_of_others: others}.items():
            found = [(name, command) for name in names if (command := self.get_command(ctx, name)) is not None]
            if found:
                with formatter.section(title):
                    formatter.write_dl([(name, command.get_short_help_str(limit=200)) for name, command in found])
