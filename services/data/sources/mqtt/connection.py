"""A connection to a broker: its messages in order, as many at a time as there is room for."""

import asyncio
import ssl
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage, topic_matches_sub
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from diem.process.auth import BadKeyFile, read_secret
from services.data.sources.mqtt.messages import Message
from services.data.sources.mqtt.table import MqttTable
from services.data.sources.records.attempts import InputFailed

KEEPALIVE_S: Final = 30
ANSWER_S: Final = 10.0
"""Longest wait for an answer of the broker."""
UNACKNOWLEDGED: Final = 1000
"""Maximum number of messages that the broker sends ahead of their acknowledgement (MQTT 5)."""
WAITING_BYTES: Final = 8 * 1024 * 1024
"""Bytes of waiting messages from which on nothing is read from the network."""
MESSAGE_BYTES: Final = 512
"""Added for each message."""
_VERSIONS: Final = {"5": MQTTProtocolVersion.MQTTv5, "3.1.1": MQTTProtocolVersion.MQTTv311}


class MqttConnection:
    """Messages of a broker; the network belongs to a thread of the library, which waits while there is no room.

    Attributes:
        session_present: True if the broker kept the session of the client.
    """

    def __init__(self, table: MqttTable, client_id: str, *, keeps_session: bool) -> None:
        self.session_present = False
        self._table = table
        self._keeps_session = keeps_session
        self._loop = asyncio.get_running_loop()
        self._messages: deque[Message] = deque()
        self._bytes = 0
        self._closing = False
        self._room = threading.Condition()
        """Guards the three above."""
        self._arrived = asyncio.Event()
        self._failure = ""
        self._answers: dict[str, asyncio.Future[Any]] = {
            name: self._loop.create_future() for name in ("connect", "subscribe")
        }
        self._client = self._make_client(client_id)

    async def connect(self) -> None:
        """Connect and subscribe; raises InputFailed."""
        host, port = self._table.address
        is_v5 = self._table.version == "5"
        options: dict[str, Any] = {}
        if is_v5:
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]  # of the library
            properties.SessionExpiryInterval = self._table.session_s if self._keeps_session else 0
            properties.ReceiveMaximum = UNACKNOWLEDGED
            options = {"clean_start": not self._keeps_session, "properties": properties}
        await asyncio.to_thread(self._client.connect, host, port, KEEPALIVE_S, **options)
        self._client.loop_start()
        flags, reason = await self._answer("connect")
        if reason.is_failure:
            raise InputFailed(f"the broker refuses the connection: {reason}")
        self.session_present = flags.session_present
        qos = self._table.qos
        if is_v5:
            wanted: Any = [(topic, SubscribeOptions(qos=qos)) for topic in self._table.topics]
        else:
            wanted = [(topic, qos) for topic in self._table.topics]
        self._client.subscribe(wanted)
        for topic, code in zip(self._table.topics, await self._answer("subscribe"), strict=True):
            if code.is_failure:
                raise InputFailed(f"the broker refuses the topic {topic}: {code}")

    async def messages(self, most: int) -> Sequence[Message]:
        """Return the next messages, in order; wait until there are any. Raises InputFailed once disconnected."""
        while not self._messages:
            if self._failure:
                raise InputFailed(self._failure)
            self._arrived.clear()
            await self._arrived.wait()
        with self._room:
            return [self._messages.popleft() for _ in range(min(most, len(self._messages)))]

    def is_subscribed(self, topic: str) -> bool:
        """Return whether a topic is wanted: a kept session may have others, of an earlier configuration."""
        return any(topic_matches_sub(each, topic) for each in self._table.topics)

    def acknowledge(self, messages: Sequence[Message]) -> None:
        """Acknowledge messages, which are stored, and make room for others."""
        for each in messages:
            if each.qos:
                self._client.ack(each.id, each.qos)
        with self._room:
            self._bytes -= sum(map(_size, messages))
            self._room.notify()

    async def close(self) -> None:
        """Disconnect; the session stays."""
        with self._room:
            self._closing = True
            self._room.notify()
        self._client.disconnect()
        await asyncio.to_thread(self._client.loop_stop)
        for each in self._answers.values():
            each.cancel()

    async def _answer(self, name: str) -> Any:  # noqa: ANN401  # of the library
        try:
            # Not wait_for(): before Python 3.12 it loses a cancellation that comes with the answer.
            async with asyncio.timeout(ANSWER_S):
                return await self._answers[name]
        except TimeoutError:
            raise InputFailed(f"no answer from {self._table.url} within {ANSWER_S:g} s") from None

    def _make_client(self, client_id: str) -> Client:
        table, is_v5 = self._table, self._table.version == "5"
        client = Client(
            CallbackAPIVersion.VERSION2,
            client_id,
            clean_session=None if is_v5 else not self._keeps_session,
            protocol=_VERSIONS[table.version],
            reconnect_on_failure=False,
            manual_ack=True,
        )
        client.connect_timeout = ANSWER_S
        if table.username is not None:
            password = None if table.password_file is None else read_secret(Path(table.password_file))
            client.username_pw_set(table.username, password)
        if table.is_encrypted:
            client.tls_set_context(_tls(table))
        client.on_connect = self._on_connect
        client.on_connect_fail = lambda *_: None
        client.on_subscribe = lambda _client, _data, _id, codes, _properties: self._settle("subscribe", codes)
        client.on_disconnect = self._on_disconnect
        client.on_message = self._on_message
        return client

    # In the thread of the library

    def _on_connect(
        self, _client: Client, _data: object, flags: ConnectFlags, reason: ReasonCode, _properties: object
    ) -> None:
        self._settle("connect", (flags, reason))

    def _on_disconnect(
        self, _client: Client, _data: object, _flags: DisconnectFlags, reason: ReasonCode, _properties: object
    ) -> None:
        self._call(self._end, f"the connection to {self._table.url} has ended: {reason}")

    def _on_message(self, _client: Client, _data: object, message: MQTTMessage) -> None:
        try:
            topic = message.topic
        except UnicodeDecodeError:
            # An error would end the thread, without a sign of it.
            self._call(self._end, "a topic is not UTF-8")
            return
        user = getattr(message.properties, "UserProperty", ()) if message.properties is not None else ()
        made = Message(
            topic,
            bytes(message.payload),
            message.qos,
            message.mid,
            retained=bool(message.retain),
            repeated=bool(message.dup),
            headers=dict(user),
        )
        with self._room:
            self._room.wait_for(lambda: self._closing or self._bytes < WAITING_BYTES)
            if self._closing:
                return
            self._bytes += _size(made)
            was_empty = not self._messages
            self._messages.append(made)
        if was_empty:
            self._call(self._arrived.set)

    def _settle(self, name: str, answer: object) -> None:
        self._call(_set, self._answers[name], answer)

    def _call(self, work: Callable[..., object], *arguments: object) -> None:
        self._loop.call_soon_threadsafe(work, *arguments)

    # On the event loop

    def _end(self, failure: str) -> None:
        self._failure = failure
        self._arrived.set()
        for each in self._answers.values():
            if not each.done():
                each.set_exception(InputFailed(failure))
                each.exception()  # nobody may wait for it


@asynccontextmanager
async def connected(table: MqttTable, client_id: str, *, keeps_session: bool) -> AsyncIterator[MqttConnection]:
    """Connect for the length of a block; raises InputFailed."""
    try:
        connection = MqttConnection(table, client_id, keeps_session=keeps_session)
        try:
            await connection.connect()
            yield connection
        finally:
            await connection.close()
    except BadKeyFile as error:
        raise InputFailed(str(error)) from error
    except OSError as error:
        raise InputFailed(f"{table.url} cannot be reached: {error}") from error


def _set(answer: "asyncio.Future[Any]", value: object) -> None:
    if not answer.done():
        answer.set_result(value)


def _size(message: Message) -> int:
    return MESSAGE_BYTES + len(message.payload)


def _tls(table: MqttTable) -> ssl.SSLContext:
    """Return the TLS context of a broker; raises InputFailed."""
    try:
        context = ssl.create_default_context(cafile=table.ca_file)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if table.certificate_file is not None:
            context.load_cert_chain(table.certificate_file, table.key_file)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(filter(None, (table.ca_file, table.certificate_file, table.key_file)))
        raise InputFailed(f"the TLS files for MQTT cannot be used ({files}): {error}") from None
    return context
