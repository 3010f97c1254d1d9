"""Creates the configured sources, refuses overlapping claims, and keeps each source running independently."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from itertools import islice
from typing import Any, Final

import structlog

from diem.errors import ConfigurationError
from diem.process import metrics
from diem.process.clock import Clock
from diem.protocol import endpoints
from services.data.access.rights import ReadRights
from services.data.errors import ChangeRefused, CheckpointMoved, InvalidDataset, UnknownSource
from services.data.files.target import Converter
from services.data.kinds import Representation, labels_of
from services.data.kinds.kind import MAX_TITLE
from services.data.kinds.prefixes import Prefixes
from services.data.limits import DATASET_BYTES
from services.data.sources import plugins
from services.data.sources.config import Config
from services.data.sources.directory import DirectorySource
from services.data.sources.extras import needing
from services.data.sources.kafka.table import KafkaTable
from services.data.sources.mqtt.table import MqttTable
from services.data.sources.pacing import HostPacer
from services.data.sources.postgres.table import PostgresConfig
from services.data.sources.records.converter import RecordConverter
from services.data.sources.records.table import RecordTable
from services.data.sources.source import (
    ChangeSource,
    Claim,
    Fault,
    Health,
    InterestSource,
    ReplayableSource,
    ResumingSource,
    Sink,
    Source,
    StoredState,
    TrialSource,
)
from services.data.sources.tables import DirectoryConfig, HttpConfig, SourceTable
from services.data.sources.webhook.source import WebhookSource
from services.data.sources.webhook.table import WebhookConfig
from services.data.store import Accepted, Change, Checkpoint, Deletion, IdempotencyKey, Patch, Write
from services.data.store.store import Store


@dataclass(eq=False)
class ClaimedTwice(ConfigurationError):
    """Two sources with overlapping claims: they would overwrite each other's data."""

    template = "the endpoint {endpoint} is claimed by two sources: {first!r} and {second!r}"

    endpoint: str
    first: str
    second: str


class ClaimIndex:
    """The claims of all sources.

    Raises:
        ClaimedTwice: two of them overlap.
    """

    def __init__(self, sources: Iterable[Source | ChangeSource]) -> None:
        self._endpoints: dict[str, str] = {}
        self._prefixes: dict[str, str] = {}
        claims = [(claim, source.name) for source in sources for claim in source.claims]
        # Prefixes first, so that each endpoint is compared with every prefix it may lie below.
        for claim, name in sorted(claims, key=lambda item: (not item[0].below, item[0].endpoint)):
            self._add(claim, name)

    def owner_of(self, endpoint: str) -> str | None:
        """Return the name of the source claiming ``endpoint``; None if it is writable through the API."""
        return self._endpoints.get(endpoint) or self._prefix_owner(endpoint)

    def _prefix_owner(self, endpoint: str) -> str | None:
        if not self._prefixes:
            return None
        owners = (self._prefixes.get(prefix) for prefix in endpoints.ancestors(endpoint))
        return next((owner for owner in owners if owner is not None), None)

    def _add(self, claim: Claim, name: str) -> None:
        own = self._prefixes if claim.below else self._endpoints
        other = own.get(claim.endpoint) or self._prefix_owner(claim.endpoint)
        if other is not None:
            raise ClaimedTwice(claim.endpoint + ("/*" if claim.below else ""), other, name)
        own[claim.endpoint] = name


RESTART_WITHIN_S: Final = 10.0
TRIAL_S: Final = 30.0
"""Time for a plug-in source's first outcome in a trial."""
TRIAL_POLL_S: Final = 0.05
NO_OUTCOME: Final = "it has called neither `health.succeeded()` nor `health.failed()`"
TRIALS_AT_ONCE: Final = 16
MAX_LABEL: Final = 64
"""Maximum number of characters of a label."""

_logger = structlog.get_logger(__name__)


class SourceRunner:
    """Runs all sources of a process.

    Raises:
        ClaimedTwice: two of them claim the same endpoint.
    """

    def __init__(
        self,
        sources: Sequence[Source | ChangeSource],
        types: Mapping[str, str] | None = None,
        *,
        max_bytes: int = DATASET_BYTES,
        prefixes: Prefixes | None = None,
    ) -> None:
        self._sources = sources
        self._max_bytes = max_bytes
        self._prefixes = prefixes or Prefixes()
        self._types = types or {}
        self._running: dict[str, asyncio.Future[None]] = {}
        """What each source does now."""
        self._resumptions: dict[str, asyncio.Event] = {}
        """Set when a stopped source may go on."""
        self._endpoints_of = {source.name: _SortedNames() for source in sources}
        self.claims = ClaimIndex(sources)

    @classmethod
    def configured(
        cls, config: Config, clock: Clock, max_bytes: int = DATASET_BYTES, *, convert: Converter
    ) -> "SourceRunner":
        """Create the sources of a configuration; ``max_bytes`` is the limit of a dataset's content.

        ``convert`` converts files with a mapping.

        Raises:
            ConfigurationError: a source, or its type, cannot be used.
        """
        pacer = HostPacer(clock)
        converter = partial(RecordConverter, prefixes=config.prefixes, max_bytes=max_bytes)
        return cls(
            [_make(one, clock, pacer, convert, converter) for one in config.source],
            {one.name: one.type for one in config.source},
            max_bytes=max_bytes,
            prefixes=config.prefixes,
        )

    @property
    def webhooks(self) -> Mapping[str, WebhookSource]:
        """The webhooks by name."""
        return {each.name: each for each in self._sources if isinstance(each, WebhookSource)}

    async def run(self, sink: Sink, stored: StoredState | None = None, changes: Store | None = None) -> None:
        """Run every source until cancelled.

        ``stored``: what those that can continue; ``changes``: for sources of records.
        """
        for source in self._sources:
            if stored is not None and isinstance(source, ResumingSource):
                source.attach(replace(stored, delete=self._deletion_of(source.name, stored)))
        async with asyncio.TaskGroup() as tasks:
            for source in self._sources:
                if not isinstance(source, ChangeSource):
                    work = partial(source.run, self._sink_of(source.name, sink))
                elif changes is not None:
                    work = partial(source.consume, _StoreSink(source.name, changes, self))
                else:
                    continue
                tasks.create_task(self._supervise(source, work))

    async def try_once(self, sink: Sink) -> None:
        """Try every source once, at most :data:`TRIALS_AT_ONCE` at a time; the outcomes are in :meth:`status`."""
        free = asyncio.Semaphore(TRIALS_AT_ONCE)

        async def attempt(source: Source | ChangeSource) -> None:
            async with free:
                try:
                    await _try(source, self._sink_of(source.name, sink))
                except Exception as error:  # noqa: BLE001  # a defect of one source, as in ``_supervise``
                    text = f"internal: {type(error).__name__}: {error}".rstrip(": ")
                    source.health.failed(text, fault=Fault.INTERNAL)

        await asyncio.gather(*map(attempt, self._sources))

    def _sink_of(self, name: str, sink: Sink) -> Sink:
        """Return a sink that accepts only datasets of claimed endpoints, and counts the endpoints."""

        async def put(datasets: Sequence[Representation], *, source: str) -> object:
            for dataset in datasets:
                if source != name or self.claims.owner_of(dataset.endpoint) != name:
                    raise InvalidDataset(f"{dataset.endpoint} is not claimed by the source {name!r}")
                check_storable(dataset, self._max_bytes)
                self._prefixes.of(dataset.endpoint).check(dataset)
            stored = await sink(datasets, source=name)
            self._endpoints_of[name].update(dataset.endpoint for dataset in datasets)
            return stored

        return put

    async def _supervise(self, source: Source | ChangeSource, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            self._running[source.name] = running = asyncio.ensure_future(work())
            try:
                await running
            except (Exception, asyncio.CancelledError) as error:
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise
                if (resume := self._resumptions.get(source.name)) is not None:
                    await resume.wait()
                    continue
                # A defect of one source, or a CancelledError of a task it awaited: restart it; others continue.
                _logger.exception("source stopped", source=source.name)
                source.health.failed(f"internal: {type(error).__name__}", fault=Fault.INTERNAL)
            wait_s = random.uniform(0, RESTART_WITHIN_S)  # noqa: S311  # jitter, not a secret
            source.health.scheduled(wait_s)
            await asyncio.sleep(wait_s)

    async def position_at(self, name: str, part: str, text: str) -> str:
        """Return the position that an operator means; raises DataError."""
        source = self.change_source(name)
        return await source.position_at(part, text) if isinstance(source, ReplayableSource) else text

    async def go_on_at(self, name: str, positions: Mapping[str, str], store: Store) -> None:
        """Stop a source of records, store other positions of some parts, and start it.

        Args:
            name: of the source.
            positions: by part; an empty one is the beginning, as the source is configured.
            store: of its checkpoints.

        Raises:
            DataError: there is no such source, or the positions cannot be stored now.
        """
        if name in self._resumptions:
            raise InvalidDataset(f"the source {name!r} is being replayed")
        self._resumptions[name] = resume = asyncio.Event()
        try:
            if (running := self._running.get(name)) is not None:
                running.cancel()
                await asyncio.wait({running})
            for part, position in positions.items():
                before = await _store_position(store, name, part, position)
                _logger.warning("source goes on elsewhere", source=name, part=part, before=before, after=position)
            if (intake := self.change_source(name).health.intake) is not None:
                intake.stopped = None
        finally:
            resume.set()
            del self._resumptions[name]

    def change_source(self, name: str) -> ChangeSource:
        """Return a source of records; raises UnknownSource."""
        found = next((each for each in self._sources if each.name == name), None)
        if not isinstance(found, ChangeSource):
            raise UnknownSource(name)
        return found

    def written(self, source: str, names: Iterable[str]) -> None:
        """Count endpoints that a source has written."""
        self._endpoints_of[source].update(names)

    def _deletion_of(self, name: str, stored: StoredState) -> Callable[[str], Awaitable[object]]:
        """Return a function that deletes an endpoint of a source, and no longer counts it."""

        async def delete(endpoint: str) -> object:
            deleted = await stored.delete(endpoint)
            self._endpoints_of[name].discard(endpoint)
            return deleted

        return delete

    def watch(self, name: str) -> None:
        """Let a trial poll an endpoint as if it were watched; raises ConfigurationError if no source would."""
        source = next((each for each in self.by_interest if Claim(each.prefix, below=True).covers(name)), None)
        if source is None:
            raise ConfigurationError(
                f"no source polls {name[:80]} while it is watched: url with {{rest}} does, for prefix"
            )
        source.watch(endpoints.check_written(name))

    @property
    def by_interest(self) -> list[InterestSource]:
        """The sources that poll what is watched."""
        return [source for source in self._sources if isinstance(source, InterestSource)]

    def health(self) -> list[Health]:
        """Return the health of each source, in the order of the configuration."""
        return [source.health for source in self._sources]

    def status(self) -> list[dict[str, Any]]:
        """Return each source's health for operators; ``endpoints`` counts those written since the start."""
        return [self._entry(source, source.health.status()) for source in self._sources]

    def public_status(self, rights: ReadRights | None = None) -> list[dict[str, Any]]:
        """Return each source's health for readers, with faults in general words.

        A reader with ``rights`` to some endpoints sees the sources claiming any of these, and counts of these.
        """
        return [
            self._entry(source, source.health.public_status(), rights)
            for source in self._sources
            if rights is None or any(_may_see(rights, claim) for claim in source.claims)
        ]

    def _entry(
        self, source: Source | ChangeSource, health: dict[str, Any], rights: ReadRights | None = None
    ) -> dict[str, Any]:
        kept = self._endpoints_of[source.name].count(rights)
        return {"name": source.name, "type": self._types.get(source.name, ""), **health, "endpoints": kept}

    def samples(self) -> Iterable[metrics.Sample]:
        """Return the sources' metrics."""
        for source in self._sources:
            yield metrics.SOURCE_OK.sample(source.health.error is None, source.name)
            yield metrics.SOURCE_POLLS.sample(source.health.successes, source.name)
            yield metrics.SOURCE_FAILURES.sample(source.health.failures, source.name)
            if (intake := source.health.intake) is not None:
                yield metrics.SOURCE_RECORDS.sample(intake.records, source.name)
                yield metrics.SOURCE_REFUSED.sample(intake.refused, source.name)
                yield metrics.SOURCE_LOST.sample(intake.lost, source.name)
                if intake.lag is not None:
                    yield metrics.SOURCE_LAG.sample(intake.lag, source.name)
        for interest in self.by_interest:
            yield metrics.SOURCE_WATCHED.sample(interest.watched, interest.name)
            yield metrics.SOURCE_UNPOLLED.sample(interest.refused, interest.name)


async def _store_position(store: Store, source: str, part: str, position: str) -> str | None:
    """Store a position; return the one before."""
    while True:
        before = (await store.reader.positions(source)).get(part)
        write = Write([], source, checkpoint=Checkpoint(part, before, position))
        # The last changes of a source that was stopped may be before it in the queue.
        with suppress(CheckpointMoved):
            await (await store.writer.queue(write))
            return before


class _StoreSink:
    """Stores the changes of one source."""

    def __init__(self, source: str, store: Store, runner: SourceRunner) -> None:
        self._source = source
        self._store = store
        self._runner = runner

    async def positions(self) -> dict[str, str]:
        """Return the stored positions."""
        return await self._store.reader.positions(self._source)

    async def enqueue(
        self, changes: Sequence[Change], checkpoint: Checkpoint | None, *, key: IdempotencyKey | None = None
    ) -> "asyncio.Future[list[Accepted]]":
        """Queue changes of claimed endpoints."""
        for index, change in enumerate(changes):
            if self._runner.claims.owner_of(change.endpoint) != self._source:
                fault = InvalidDataset(f"{change.endpoint} is not claimed by the source {self._source!r}")
                raise ChangeRefused(index, fault)
        answer = await self._store.writer.queue(Write(changes, self._source, key, checkpoint=checkpoint))
        answer.add_done_callback(self._count)
        return answer

    def _count(self, answer: "asyncio.Future[list[Accepted]]") -> None:
        if not answer.cancelled() and answer.exception() is None:
            self._runner.written(self._source, [each.endpoint for each in answer.result()])


class _TrialSink:
    """Passes contents to the sink of a trial; stores nothing."""

    def __init__(self, source: str, sink: Sink) -> None:
        self._source = source
        self._sink = sink

    async def positions(self) -> dict[str, str]:
        """Return no position: a trial reads a sample as configured."""
        return {}

    async def enqueue(
        self, changes: Sequence[Change], checkpoint: Checkpoint | None, *, key: IdempotencyKey | None = None
    ) -> "asyncio.Future[list[Accepted]]":
        """Pass on the contents, those of new series for their points."""
        del checkpoint, key
        made = [each.initial if isinstance(each, Patch) else each for each in changes if not isinstance(each, Deletion)]
        await self._sink([each for each in made if each is not None], source=self._source)
        answer: asyncio.Future[list[Accepted]] = asyncio.get_running_loop().create_future()
        answer.set_result([])
        return answer


class _SortedNames:
    """The endpoints written by a source; bounded like the store's."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}
        self._sorted: list[str] = []

    def update(self, names: Iterable[str]) -> None:
        """Add names."""
        self._names.update(dict.fromkeys(names))

    def discard(self, name: str) -> None:
        """Remove a name."""
        if name in self._names:
            del self._names[name]
            self._sorted = []

    def count(self, rights: ReadRights | None) -> int:
        """Return the number of names within ``rights``; None: all."""
        if rights is None:
            return len(self._names)
        if len(self._sorted) < len(self._names):
            # New names are last: sorting two sorted runs is cheap.
            self._sorted = sorted([*self._sorted, *sorted(islice(self._names, len(self._sorted), None))])
        return sum(map(len, rights.spans(self._sorted)))


def _may_see(rights: ReadRights, claim: Claim) -> bool:
    return rights.overlaps(claim.endpoint) if claim.below else rights.allows(claim.endpoint)


def check_storable(dataset: Representation, max_bytes: int = DATASET_BYTES) -> None:
    """Refuse content that the database would refuse together with the rest of its transaction.

    Raises:
        InvalidDataset: its name is invalid, or its title or a label is too long or no text.
        DatasetTooLarge: its content has more than ``max_bytes``.
    """
    dataset.check_size(max_bytes)
    try:
        endpoints.check_written(dataset.endpoint)
    except endpoints.BadName as error:
        raise InvalidDataset(str(error)) from None
    labels = [(name, text, MAX_LABEL) for name, text in labels_of(dataset.labels).items()]
    for field, text, most in (("title", dataset.title, MAX_TITLE), *labels):
        if len(text) > most:
            raise InvalidDataset(f"the {field} has more than {most} characters", dataset.endpoint)
        if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
            raise InvalidDataset(f"the {field} is not valid text: it has half of a surrogate pair", dataset.endpoint)


def _make(
    table: SourceTable,
    clock: Clock,
    pacer: HostPacer,
    convert: Converter,
    converter: Callable[[RecordTable], RecordConverter],
) -> Source | ChangeSource:
    match table:
        case DirectoryConfig():
            return DirectorySource(table, clock, convert=convert)
        case HttpConfig():
            # Only a process that polls URLs loads the HTTP client.
            from services.data.sources.http import HttpSource  # noqa: PLC0415
            from services.data.sources.watched import WatchedSource  # noqa: PLC0415

            if table.is_watched:
                return WatchedSource(table, clock, pacer=pacer, convert=convert)
            return HttpSource(table, clock, pacer=pacer, convert=convert)
        case KafkaTable():
            with needing("kafka"):
                module = import_module("services.data.sources.kafka.source")
            made: ChangeSource = module.KafkaSource(table, clock, converter(table))
        case PostgresConfig():
            with needing("postgres"):
                module = import_module("services.data.sources.postgres.source")
            made = module.PostgresSource(table, clock, converter)
        case MqttTable():
            with needing("mqtt"):
                module = import_module("services.data.sources.mqtt.source")
            made = module.MqttSource(table, clock, converter(table))
        case WebhookConfig():
            return WebhookSource(table, clock, converter(table))
        case _:
            return _plugged_in(table, clock)
    return made


def _plugged_in(table: SourceTable, clock: Clock) -> Source:
    kind = plugins.find(table.type)
    if kind is None:
        raise plugins.BadPlugin(table.type, "it is not installed")
    try:
        return kind(table, clock)
    except ConfigurationError:
        raise
    except Exception as error:
        reason = f"source {table.name!r}: {type(error).__name__}: {error}"[:300]
        raise plugins.BadPlugin(table.type, reason) from error


async def _try(source: Source | ChangeSource, sink: Sink) -> None:
    """Try a source once; one that can only run is stopped after its first outcome.

    Ending or timing out (:data:`TRIAL_S`) without one is its error.
    """
    if isinstance(source, ChangeSource):
        await source.try_once(_TrialSink(source.name, sink))
        return
    if isinstance(source, TrialSource):
        await source.try_once(sink)
        return
    health = source.health
    running = asyncio.create_task(source.run(sink))
    try:
        async with asyncio.timeout(TRIAL_S):
            while not running.done() and health.error is None and health.last_success_ms is None:
                await asyncio.wait({running}, timeout=TRIAL_POLL_S)
    except TimeoutError:
        if health.error is None and health.last_success_ms is None:
            health.failed(f"no outcome within {TRIAL_S:g} s: {NO_OUTCOME}")
    finally:
        if not running.done():
            running.cancel()
        outcome, *_ = await asyncio.gather(running, return_exceptions=True)
    if isinstance(outcome, Exception):
        raise outcome
    if health.error is None and health.last_success_ms is None:
        health.failed(f"it ended without an outcome: {NO_OUTCOME}")
