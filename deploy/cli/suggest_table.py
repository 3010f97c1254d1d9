"""``diem sources suggest postgresql://USER@HOST/DATABASE``: find the table of a database, and what that lacks."""

import json as json_
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import typer
from rich.console import RenderableType
from rich.text import Text

from deploy.cli.options import UnusableFile
from deploy.cli.suggest_topic import keys_of
from deploy.terminal import plain_console
from diem.errors import ConfigurationError
from services.data.errors import DataError
from services.data.files.layout_text import source_text
from services.data.sources.extras import needing
from services.data.sources.postgres.table import PostgresConfig

SCHEMES: Final = ("postgresql://", "postgres://")


class TableDraft(NamedTuple):
    """The ``[[source]]`` of a database."""

    name: str
    table: str
    statements: Sequence[str]
    unsure: Sequence[str]
    problem: str

    @property
    def commented(self) -> str:
        """The table with what is to be done before it."""
        notes = [*(f"first: {each}" for each in self.statements), *(f"unsure: {each}" for each in self.unsure)]
        return "".join(f"# {each}\n" for each in notes) + self.table


async def suggest_table(place: str, answers: Sequence[str], name: str | None, *, json: bool) -> TableDraft:
    """Read the catalog of a database and print its suggested table.

    Raises:
        UnusableFile: it cannot be read.
    """
    known: dict[str, Any] = {**keys_of(answers)}
    if "password" in known:
        known["password"] = {"file": known["password"]}
    try:
        draft = await _draft(place, known, name)
    except (ConfigurationError, DataError, ValueError) as error:
        raise UnusableFile(place.partition("?")[0], str(error)) from None
    if json:
        typer.echo(json_.dumps({**draft._asdict(), "statements": [*draft.statements]}))
    else:
        console = plain_console()
        for part in _render(draft):
            console.print(part, soft_wrap=True)
    return draft


async def _draft(place: str, known: Mapping[str, Any], name: str | None) -> TableDraft:
    with needing("postgres"):
        from services.data.sources.postgres import suggestion  # noqa: PLC0415  # only for databases
        from services.data.sources.postgres.session import connect  # noqa: PLC0415
    database = place.partition("?")[0].rpartition("/")[2]
    name = name or re.sub(r"[^\w.-]", "-", database) or "database"
    connection = {"url": place, **({"password": known["password"]} if "password" in known else {})}
    base = {"type": "postgres", "name": name, **connection}
    config = PostgresConfig.model_validate({**base, "publication": "none", "endpoint": "/none/{id}"})
    session = await connect(config)
    try:
        server = await suggestion.find_server(session)
        given = known.get("publication") or (server.publications[0] if len(server.publications) == 1 else None)
        tables = await suggestion.find_tables(session, given if given in server.publications else None)
    finally:
        session.terminate()
    made = suggestion.suggest(name, server, tables, given or "diem", known)
    text = "" if made.problem else source_text({**base, **made.fields}, None)
    return TableDraft(name, text, made.statements, made.unsure, made.problem)


def _render(draft: TableDraft) -> Iterator[RenderableType]:
    if draft.problem:
        yield Text(f"no source is found: {draft.problem}")
    else:
        yield Text(draft.table)
    if draft.statements:
        yield Text("run in the database, as its owner:")
        yield from (Text(f"  {each}") for each in draft.statements)
    for each in draft.unsure:
        yield Text(f"unsure: {each}")
    if not draft.problem:
        yield Text("then `diem sources check` shows rows of every table; without the right to replicate, use an outbox")
