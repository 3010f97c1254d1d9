"""The command ``diem pipeline erase``: removes a client's recorded data on request."""

import json
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from deploy.cli.options import StateDirOption
from deploy.system.state_dir import StateDir
from deploy.terminal import DEFAULT_STATE_DIR, Terminal, amount
from diem.traffic.salt import client_identity, known_pseudonyms
from learning.commands.spark_options import WarehouseOption
from learning.spark import pipeline

DAYS: Final = 400
"""Maximum number of past days to compute pseudonyms for, given an old enough salt."""
_PSEUDONYM: Final = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class Wanted:
    """The pseudonyms to erase."""

    names: frozenset[str]
    """Hexadecimal."""
    days: tuple[date, ...]
    """Days (UTC) with a known pseudonym of the client."""


def erase_command(
    *,
    client: Annotated[
        str | None,
        typer.Argument(
            help="Id of the client, as stored by its page (docs/traffic.md section 5).", metavar="CLIENT-ID"
        ),
    ] = None,
    pseudonym: Annotated[
        list[str] | None,
        typer.Option(help="Pseudonym of one day, as in column client of the tables. Repeatable.", metavar="HEX"),
    ] = None,
    salt_file: Annotated[
        Path | None,
        typer.Option(help="Salt of today or of an earlier day. Default: that of the state directory.", metavar="FILE"),
    ] = None,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    warehouse: WarehouseOption = None,
    folder: Annotated[
        Path | None, typer.Option("--input", help="Folder of files. Default: traffic/in in the state directory.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Remove everything recorded about a client: from the tables, and from files that have not been read yet.

    Pseudonyms change every day. The client's id alone finds today's; an earlier salt finds all from its day on.
    """
    state = StateDir(state_dir)
    wanted = find_pseudonyms(client, pseudonym or [], salt_file or state.traffic_salt_file, datetime.now(UTC).date())
    here = pipeline.warehouse(state.path, warehouse)
    rows, lines = pipeline.erase(here, folder.absolute() if folder else state.path / "traffic" / "in", wanted.names)
    days = [day.isoformat() for day in wanted.days]
    if as_json:
        typer.echo(json.dumps({"rows": rows, "lines": lines, "pseudonyms": sorted(wanted.names), "days": days}))
        return 0
    terminal = Terminal()
    terminal.info(f"removed {amount(rows, 'row')} of the tables and {amount(lines, 'line')} of files")
    if days:
        span = " to ".join(dict.fromkeys((days[0], days[-1])))
        terminal.info(
            f"these are of {span} (UTC): earlier pseudonyms cannot be computed, so earlier rows stay until their "
            "retention ends"
        )
    if any(name.startswith("kafka-") for name in here.sources()):
        terminal.info("records in Kafka that have not been read yet were not removed: read them, then run this again")
    return 0


def find_pseudonyms(client: str | None, names: list[str], salt: Path, today: date) -> Wanted:
    """Return the given pseudonyms, and a client's on the days since a salt's.

    Raises:
        typer.BadParameter: nothing is given, or an invalid pseudonym. BadKeyFile: the salt is needed but unreadable.
    """
    if client is None and not names:
        raise typer.BadParameter("give the id of a client, or a --pseudonym")
    for name in names:
        if _PSEUDONYM.fullmatch(name) is None:
            raise typer.BadParameter(f"a --pseudonym is 16 hexadecimal digits, not {name!r}")
    if client is None:
        return Wanted(frozenset(names), ())
    found = known_pseudonyms(salt, client_identity(client), today, DAYS)
    return Wanted(frozenset({*names, *(value.hex() for value in found.values())}), tuple(sorted(found)))
