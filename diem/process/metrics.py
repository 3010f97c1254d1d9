"""Every metric of the system by name, and the exposition of those registered by a process.

Hot paths count in plain integers; a process registers one function, called at each scrape, that returns them as samples
of the metrics below.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from diem.fanout.data_budget import DataBudget


class Definition(NamedTuple):
    """A metric's name, kind, meaning and labels."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()

    @property
    def exposed_name(self) -> str:
        """The name in the exposition, which appends ``_total`` to the names of counters."""
        return f"{self.name}_total" if self.kind == "counter" else self.name

    def sample(self, value: float, *labels: str) -> "Sample":
        """Return a sample of this metric; ``labels`` are the values of its labels, in order."""
        if len(labels) != len(self.labels):
            raise ValueError(f"{self.name} takes the labels {self.labels}, not {labels}")
        return Sample(self, float(value), labels)


class Sample(NamedTuple):
    """One value at one scrape."""

    metric: Definition
    value: float
    labels: tuple[str, ...]


Collect = Callable[[], Iterable[Sample]]


def _gauge(name: str, meaning: str, *labels: str) -> Definition:
    return Definition(f"diem_{name}", "gauge", meaning, labels)


def _counter(name: str, meaning: str, *labels: str) -> Definition:
    return Definition(f"diem_{name}", "counter", meaning, labels)


# Clients of a WebSocket server.
CLIENTS: Final = _gauge("clients", "Open client connections.")
CLIENTS_BY_ACCESS: Final = _gauge(
    "clients_by_access", "Open client connections: anonymous, authenticated, or pending a token.", "access"
)
AUTHENTICATIONS: Final = _counter("authentications", "Authentication attempts.", "outcome")
PROXY_LINKS: Final = _gauge("proxy_links", "Open links of proxies.")
SUBSCRIPTIONS: Final = _gauge("subscriptions", "Pairs of a client and an endpoint.")
MESSAGES: Final = _counter("messages", "Messages received from clients.", "type")
ERRORS: Final = _counter("errors", "Error replies sent to clients.", "code")
CLOSES: Final = _counter("closes", "Client connections closed.", "code")
REFUSED: Final = _counter("handshakes_refused", "Client handshakes refused.", "status")
TLS_HANDSHAKES: Final = _counter(
    "tls_handshakes", "TLS handshakes: completed, failed, evicted, or refused before they began.", "listener", "outcome"
)

CERTIFICATE_EXPIRY: Final = _gauge(
    "certificate_expiry_timestamp_seconds", "Unix time at which a listener's TLS certificate expires.", "listener"
)

# Path of an update through a process: received = fanned out + not subscribed + stale (invariant I14).
ENDPOINTS: Final = _gauge("endpoints_retained", "Endpoints whose latest update is held.")
RETAINED_DATA_BYTES: Final = _gauge("retained_data_bytes", "Bytes of updates retained with their data.")
RETAINED_DATA_EVICTED: Final = _counter(
    "retained_data_evicted", "Updates whose data was evicted; clients that subscribe fetch it."
)
COMPRESSED_BYTES: Final = _gauge("compressed_frames_bytes", "Bytes of cached compressed frames and their updates.")
UPDATES_RECEIVED: Final = _counter("updates_received", "Updates received from the feed.")
UPDATES_FANNED_OUT: Final = _counter("updates_fanned_out", "Updates with at least one subscriber here.")
UPDATES_NOT_SUBSCRIBED: Final = _counter("updates_not_subscribed", "Updates without a subscriber here.")
UPDATES_STALE: Final = _counter("updates_stale", "Updates not newer than the retained version, or replaced on arrival.")
DELIVERIES: Final = _counter("deliveries", "Update frames given to client connections.")
REPLIES_WITHOUT_DATA: Final = _counter(
    "replies_without_data", "Retained updates sent without data: the allowance of the client or its plan is used up."
)
DELIVERIES_CONFLATED: Final = _counter("deliveries_conflated", "Unsent update frames replaced by a later one.")
DELIVERY_DELAY: Final = _gauge(
    "delivery_delay_seconds",
    "Longest time in the last 15 s from an update's acceptance by the Data Service to its fan-out here; sampled twice "
    "a second, by both machines' clocks.",
)
STALE_ENDPOINTS: Final = _gauge(
    "stale_endpoints", "Endpoints of clients that may be out of date: their server is unreachable or not live."
)

# A canary (`diem canary`), which is not part of the system.
CANARY_DELAY: Final = _gauge(
    "canary_delay_seconds",
    "Longest time from the commit of a canary's endpoint to its delivery by an edge: of each partition's last update, "
    "or of one that is due.",
    "edge",
)
CANARY_LATE: Final = _gauge(
    "canary_late",
    "1 for each late partition of an edge; 0, without a partition, if none is late.",
    "edge",
    "partition",
)
CANARY_WRITTEN: Final = _gauge(
    "canary_written_timestamp_seconds", "Unix time at which a canary's last write was accepted; 0: none yet."
)

# Path of a record through a bridge: received = sent to the reader + conflated + bad + tombstones + marks (I14).
UPDATES_CONFLATED: Final = _counter("updates_conflated", "Updates replaced by a greater version in the same poll.")
UPDATES_BAD: Final = _counter("updates_bad", "Kafka records that were not updates.")
UPDATES_TOMBSTONES: Final = _counter("updates_tombstones", "Kafka records without a value.")
UPDATES_MARKS: Final = _counter("updates_marks", "Watermarks of the publisher: everything accepted is in the log.")
UPDATES_MISPLACED: Final = _counter(
    "updates_misplaced", "Records of a served topic in partitions where clients do not look for their keys."
)
KAFKA_LAG: Final = _gauge("kafka_lag", "Records known to be in Kafka and not yet read.")
CONSUMERS_RECREATED: Final = _counter("consumers_recreated", "Kafka consumers replaced after a fault or a standstill.")
GROUP_JOINED: Final = _gauge("group_joined", "1 while this bridge is in its group.")
GROUP_ASSIGNMENTS: Final = _counter("group_assignments", "Assignments of partitions by the group.")
GROUP_OWNED: Final = _gauge("group_owned", "Partitions assigned to this bridge.")
COMMITS_FAILED: Final = _counter("commits_failed", "Offset commits that Kafka did not accept.")

# Feeds: the reader's end (one per process) and the server's end.
FEED_CONNECTED: Final = _gauge("feed_connected", "1 while the link to the feed is up.")
FEED_LIVE: Final = _gauge("feed_live", "1 while heartbeats of the feed's source arrive; 0: clients are sent not live.")
FEED_SILENCE: Final = _gauge("feed_silence_seconds", "Seconds since the last heartbeat of the feed's source.")
FEED_POSITION: Final = _gauge("feed_position", "Next position to be read, by stream.", "name")
FEED_CONNECTS: Final = _counter("feed_connects", "Links to the feed established.")
FEED_READERS: Final = _gauge("feed_readers", "Readers of this process's feed.")
FEED_SENT: Final = _counter("feed_changes_sent", "Changes sent to readers of this process's feed.")

# The Data Service's store.
STORE_SEQUENCE: Final = _gauge("store_sequence", "Sequence of the last committed change.")
STORE_COMMITS: Final = _counter("store_commits", "Transactions committed.")
STORE_CHANGES: Final = _counter("store_changes", "Endpoint changes committed.")
STORE_UNCHANGED: Final = _counter("store_unchanged", "Writes of data that was stored already.")
STORE_FAILURES: Final = _counter("store_failures", "Transactions that failed.")
STORE_QUEUE: Final = _gauge("store_queue", "Writes waiting for the store.")
DISK_FREE: Final = _gauge("disk_free_bytes", "Bytes free on the state directory's file system.")
DISK_SIZE: Final = _gauge("disk_size_bytes", "Size of the state directory's file system.")

# The Data Service's publisher.
PUBLISHER_UP: Final = _gauge("publisher_up", "1 while updates are written to Kafka.")
PUBLISHER_LAG: Final = _gauge("publisher_lag", "Accepted changes not known to be in Kafka.")
PUBLISHED: Final = _counter("published", "Records written to Kafka and acknowledged.")
PUBLISHER_OPENED: Final = _counter("publisher_opened", "Times the publisher opened the topic.")
PUBLISHER_FOREIGN: Final = _counter("publisher_foreign", "Partitions resent because of another program's records.")

KAFKA_LEADERLESS: Final = _gauge(
    "kafka_partitions_leaderless", "Partitions of our topics without a leader; their updates wait."
)
KAFKA_UNDER_REPLICATED: Final = _gauge(
    "kafka_partitions_under_replicated", "Partitions of our topics with a replica out of sync."
)

# The Data Service's sources and its REST interface.
SOURCE_OK: Final = _gauge("source_ok", "0 while a source has an error: its data may be out of date.", "source")
SOURCE_POLLS: Final = _counter("source_polls", "Successful polls of a source.", "source")
SOURCE_FAILURES: Final = _counter(
    "source_failures", "Faults of a source: failed polls, or files that became invalid.", "source"
)
SOURCE_RECORDS: Final = _counter("source_records", "Records of a topic, table, broker or webhook applied.", "source")
SOURCE_REFUSED: Final = _counter("source_refused", "Records that could not be stored.", "source")
SOURCE_LOST: Final = _counter("source_lost", "Records that the origin lost before they were read.", "source")
SOURCE_LAG: Final = _gauge("source_lag", "Records still to be read; bytes for PostgreSQL.", "source")
SOURCE_WATCHED: Final = _gauge("source_watched", "Watched endpoints that a source polls.", "source")
SOURCE_UNPOLLED: Final = _gauge(
    "source_watched_refused", "Watched endpoints beyond the limit of a source, not polled.", "source"
)
HTTP_REQUESTS: Final = _counter("http_requests", "Public HTTP requests answered.", "method", "status")

# API keys and plans of the Data Service.
ACCESS_REQUESTS: Final = _counter(
    "access_requests", "Requests of API keys and of the configured anonymous plan.", "plan", "outcome"
)
ACCESS_MERGED: Final = _counter("access_requests_merged", "Requests beyond the limit, counted without their endpoint.")
ACCESS_UNKNOWN: Final = _counter("access_unknown_keys", "Requests with an unknown or revoked API key.")
ACCESS_KEYS: Final = _gauge("access_keys", "API keys not revoked.")
ACCESS_KEY_EXPIRY: Final = _gauge(
    "access_key_expiry_timestamp_seconds", "Unix time at which the next API key or write key expires."
)
ACCESS_RESERVATIONS: Final = _counter("access_reservations", "Commits that reserved requests of a day.")

# Refusals and audited changes (diem.process.security_log).
SECURITY_EVENTS: Final = _counter("security_events", "Refusals, wrong keys, writes and administrative changes.", "kind")
SECURITY_UNATTRIBUTED: Final = _counter(
    "security_events_unattributed", "Security events beyond the limit, logged only as a count of their kind."
)

# Client tokens.
TOKENS_ISSUED: Final = _counter("tokens_issued", "Client tokens issued.")
TOKENS_VERIFIED: Final = _counter("tokens_verified", "Client tokens verified.", "outcome")
TOKEN_KEYS: Final = _gauge("token_keys", "Keys that verify client tokens.")
TOKEN_KEYS_REVOKED: Final = _gauge("token_keys_revoked", "Revoked API keys whose tokens are refused.")
TOKEN_KEYS_AGE: Final = _gauge("token_keys_age_seconds", "Seconds since the stalest location of keys was read.")
TOKEN_KEY_FAILURES: Final = _counter("token_key_failures", "Failed polls of token keys.")

# Recorded traffic: recorded = written + lost + queued.
TRAFFIC_RECORDED: Final = _counter("traffic_recorded", "Traffic events recorded.", "type")
TRAFFIC_LOST: Final = _counter("traffic_lost", "Traffic events dropped.", "reason")
TRAFFIC_WRITTEN: Final = _counter("traffic_written", "Traffic events written.")
TRAFFIC_BATCHES: Final = _counter("traffic_batches", "Batches of traffic events written.")
TRAFFIC_QUEUED: Final = _gauge("traffic_queued", "Traffic events waiting to be written.")

# A composite's children.
CHILD_UP: Final = _gauge("child_up", "1 while the child runs; url is the address of its metrics.", "child", "url")
CHILD_RESTARTS: Final = _counter("child_restarts", "Restarts of children that died.")
PAIRS: Final = _gauge("pairs", "Pairs of bridge and server that should run.")
PAIRS_READY: Final = _gauge("pairs_ready", "Pairs whose server accepts clients.")
COMPOSITE_CLIENTS: Final = _gauge("composite_clients", "Open client connections of the composite's proxy.")

# The metadata service.
MAP_EPOCH: Final = _gauge("map_epoch", "Epoch of the partition map.")
MAP_MOVING: Final = _gauge("map_moving_endpoints", "Endpoints moving to another partition.")
CLONE_MEMBERS: Final = _gauge("clone_members", "Servers in a clone's group.", "clone")
CLONE_FOREIGN: Final = _gauge("clone_foreign_members", "Members of a clone's group that are not servers.", "clone")
CLONE_OWNED: Final = _gauge("clone_partitions_owned", "Partitions of a clone that have an owner.", "clone")
CLONE_STABLE: Final = _gauge("clone_stable", "1 while a clone's group is not rebalancing.", "clone")
GROUPS_SILENCE: Final = _gauge("groups_silence_seconds", "Seconds since Kafka last reported every group.")
GROUPS_FAILURES: Final = _counter("groups_failures", "Failed polls of the groups.")
WATCHERS: Final = _gauge("watchers", "Open subscriptions of proxies to the partition map.", "listener")

# The process itself; ``process_*`` (memory, processor time, descriptors) comes from the client library.
LOOP_LAG_SECONDS: Final = _gauge("loop_lag_seconds", "Worst delay of the event loop since the last scrape.")

ALL: Final = tuple(value for value in list(globals().values()) if isinstance(value, Definition))

_collects: list[Collect] = []


def register(collect: Collect) -> Callable[[], None]:
    """Call ``collect`` at every scrape; return a function that unregisters it."""
    _collects.append(collect)
    return lambda: _collects.remove(collect)


def collect() -> Iterable[Sample]:
    """Return the samples of all registered functions."""
    for each in tuple(_collects):
        yield from each()


def retained_data(budget: DataBudget) -> Iterable[Sample]:
    """Sample the data that a process retains with updates."""
    yield RETAINED_DATA_BYTES.sample(budget.bytes)
    yield RETAINED_DATA_EVICTED.sample(budget.evicted)


def render() -> tuple[bytes, str]:
    """Return the body of a scrape and its content type."""
    # Imported at the first scrape, to save 25 ms at the start.
    from diem.process import exposition  # noqa: PLC0415

    return exposition.render()
