"""``diem sources suggest kafka://HOST:PORT/TOPIC``: find the table of a topic, and show what it would publish."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import typer
from pydantic import ValidationError
from rich.console import RenderableType
from rich.text import Text

from deploy.cli.options import UnusableFile
from deploy.terminal import plain_console
from diem.errors import ConfigurationError, did_you_mean
from diem.process.clock import SystemClock
from services.data.errors import DataError
from services.data.files.layout_text import source_text
from services.data.kinds import Representation
from services.data.sources.extras import needing
from services.data.sources.kafka.suggestion import TopicSuggestion, as_json, sample_of, shown, suggest
from services.data.sources.kafka.table import KafkaTable
from services.data.sources.records.attempts import InputFailed
from services.data.sources.records.converter import RecordConverter, SeriesPoint

SCHEME: Final = "kafka://"
MAX_SHOWN: Final = 5


class TopicDraft(NamedTuple):
    """The table of a topic, and what it would publish."""

    name: str
    suggestion: TopicSuggestion
    table: str
    found: dict[str, bytes]
    """Contents by endpoint."""
    faults: Sequence[str]


def keys_of(answers: Sequence[str]) -> dict[str, str]:
    """Return the keys of a source that a user has set; raises ``typer.BadParameter``."""
    known = dict(answer.split("=", 1) for answer in answers if "=" in answer)
    if len(known) < len(answers):
        raise typer.BadParameter("--set takes KEY=VALUE, with keys of docs/sources.md")
    return known


async def suggest_topic(place: str, answers: Sequence[str], name: str | None, *, json: bool) -> TopicDraft:
    """Sample a topic and print its suggested table.

    Raises:
        UnusableFile: it cannot be read.
    """
    servers, _, topic = place.removeprefix(SCHEME).partition("/")
    known = keys_of(answers)
    try:
        draft = await _draft(servers, topic, known, name or topic)
    except (InputFailed, ConfigurationError, ValidationError, DataError) as error:
        raise UnusableFile(place, _reason(error)) from None
    if json:
        typer.echo(as_json(draft.suggestion, draft.table, draft.found))
    else:
        console = plain_console()
        for part in _render(place, draft):
            console.print(part, soft_wrap=True)
    return draft


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        if first["type"] == "extra_forbidden":
            key = str(first["loc"][-1])
            return f"--set {key}: unknown key{did_you_mean(key, KafkaTable.model_fields)}; docs/sources.md has all keys"
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")
    return str(error)


async def _draft(servers: str, topic: str, known: dict[str, str], name: str) -> TopicDraft:
    with needing("kafka"):
        from services.data.sources.kafka.source import KafkaSource  # noqa: PLC0415  # only for topics
    base = {"type": "kafka", "name": name, "bootstrap_servers": servers, "topics": [topic]}
    context = {"directory": ""}
    sampled = KafkaTable.model_validate({**base, "endpoint": "/sample/{key}", **known}, context=context)
    raw = await KafkaSource(sampled, SystemClock(), RecordConverter(sampled)).sample()
    records = [sample_of(each) for records in raw.values() for each in records]
    made = suggest(topic, records, known)
    if made.problem:
        return TopicDraft(name, made, "", {}, ())
    fields = {**base, **made.fields}
    table = KafkaTable.model_validate(fields, context=context)
    source = KafkaSource(table, SystemClock(), RecordConverter(table))
    found: dict[str, bytes] = {}
    faults = []
    for record in await source.decoded(raw):
        try:
            change = RecordConverter(table).convert(record)
        except DataError as error:
            faults.append(str(error))
            continue
        if isinstance(change, Representation):
            found[change.endpoint] = change.content
        elif isinstance(change, SeriesPoint):
            found[change.endpoint] = str(change.point.value).encode()
    return TopicDraft(name, made, source_text(fields, None), found, list(dict.fromkeys(faults)))


def _render(place: str, draft: TopicDraft) -> Iterator[RenderableType]:
    made = draft.suggestion
    if made.problem:
        yield Text(f"{place}: no source is found: {made.problem}")
    else:
        yield Text(f"{place}: {len(draft.found)} endpoints in the last records\n")
        yield Text(draft.table)
        for name, content in [*draft.found.items()][:MAX_SHOWN]:
            yield Text(f"{name}  {shown(content)}")
        yield Text("")
    for fault in draft.faults[:MAX_SHOWN]:
        yield Text(f"but: {fault}")
    if made.notes:
        yield Text("the topic shows:")
        yield from (Text(f"  {each}") for each in made.notes)
    if made.unsure:
        yield Text("unsure:")
        yield from (Text(f"  {each}") for each in made.unsure)
    elif not made.problem:
        yield Text("nothing is unsure")


def commented(draft: TopicDraft) -> str:
    """Return the table with what is unsure before it."""
    return "".join(f"# unsure: {each}\n" for each in draft.suggestion.unsure) + draft.table
