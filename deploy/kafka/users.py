"""Creates the users and rights of a local Kafka, through the controllers' listener.

It accepts holders of the brokers' certificate, so that users can be created in data without any, new or of an earlier
release. Existing ones are updated, so a replaced password file or topic prefix needs no further step.
"""

import asyncio
import hashlib
import secrets
import ssl
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from aiokafka.conn import create_conn
from aiokafka.errors import KafkaError, for_code
from aiokafka.protocol.admin import CreateAclsRequest_v1
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import CompactArray, CompactBytes, CompactString, Int8, Int16, Int32, Schema, TaggedFields

from deploy.kafka.brokers import HOST
from deploy.kafka.credentials import controller_context, password_of
from deploy.kafka.rights import Right, of_local_users
from deploy.topology.kafka_users import MECHANISM, KafkaUser
from diem.errors import DiemError
from diem.kafka.config import Names

_POLL_S: Final = 0.05
_ANSWER_TIMEOUT_MS: Final = 5000


@dataclass(eq=False)
class UsersNotCreated(DiemError):
    """No controller created the users in time."""

    template = "the users of the local Kafka cannot be created: {reason}"

    reason: str


async def create_users(directory: Path, controllers: Sequence[int], names: Names, within: float) -> None:
    """Create every user with its password and rights; retried until a controller succeeds.

    Args:
        directory: of the brokers' data and credentials.
        controllers: ports of the controllers.
        names: of topics and groups.
        within: time limit in seconds.

    Raises:
        UsersNotCreated: none succeeded in time.
        BadKeyFile: a password file is invalid.
    """
    context = await asyncio.to_thread(controller_context, directory)
    users = {user.login: password_of(user, directory) for user in KafkaUser}
    requests: list[SetPasswords | CreateAcls] = [SetPasswords(MECHANISM, users), CreateAcls(of_local_users(names))]
    fault: Exception = TimeoutError()
    try:
        async with asyncio.timeout(within):
            while True:
                for port in controllers:
                    try:
                        await _send_all(port, context, requests)
                    except (KafkaError, OSError) as error:
                        # Not listening yet, or not the leader.
                        fault = error
                    else:
                        return
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        raise UsersNotCreated(str(fault) or type(fault).__name__) from fault


async def _send_all(port: int, context: ssl.SSLContext, requests: "Iterable[SetPasswords | CreateAcls]") -> None:
    """Send requests to one controller. Raises ``KafkaError`` or ``OSError`` unless all succeed."""
    connection = await create_conn(
        HOST, port, security_protocol="SSL", ssl_context=context, request_timeout_ms=_ANSWER_TIMEOUT_MS
    )
    try:
        for request in requests:
            answer = await connection.send(request)
            for code, text in request.results(answer):
                if code:
                    raise for_code(code)(text)
    finally:
        connection.close()


_ITERATIONS: Final = 4096
"""Kafka's minimum: the passwords have 256 random bits, so more would only cost time."""
_SALT_BYTES: Final = 16
_HASHES: Final = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}
"""Number of a mechanism in Kafka's protocol, and its hash."""


class _SetPasswordsResponse(Response):  # type: ignore[misc]  # aiokafka has no types
    API_KEY = 51
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "results",
            CompactArray(
                ("user", CompactString()),
                ("error_code", Int16),
                ("error_message", CompactString()),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _SetPasswordsStruct(RequestStruct):  # type: ignore[misc]  # aiokafka has no types
    FLEXIBLE_VERSION: ClassVar[bool] = True
    API_KEY = 51
    API_VERSION = 0
    RESPONSE_TYPE = _SetPasswordsResponse
    SCHEMA = Schema(
        ("deletions", CompactArray(("name", CompactString()), ("mechanism", Int8), ("tags", TaggedFields))),
        (
            "upsertions",
            CompactArray(
                ("name", CompactString()),
                ("mechanism", Int8),
                ("iterations", Int32),
                ("salt", CompactBytes),
                ("salted_password", CompactBytes),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class SetPasswords(Request[_SetPasswordsStruct]):  # type: ignore[misc]  # aiokafka has no types
    """``AlterUserScramCredentials``: creates users, or changes their passwords (KIP-554)."""

    API_KEY = 51

    def __init__(self, mechanism: str, passwords: Mapping[str, str]) -> None:
        number, name = _HASHES[mechanism]
        self._users: list[tuple[str, int, int, bytes, bytes, dict[int, bytes]]] = []
        for user, password in passwords.items():
            salt = secrets.token_bytes(_SALT_BYTES)
            salted = hashlib.pbkdf2_hmac(name, password.encode(), salt, _ITERATIONS)
            self._users.append((user, number, _ITERATIONS, salt, salted, {}))

    def build(self, request_struct_class: type[_SetPasswordsStruct]) -> _SetPasswordsStruct:
        """Return the request as aiokafka sends it."""
        return request_struct_class([], self._users, {})

    @staticmethod
    def results(answer: Any) -> Iterable[tuple[int, str]]:  # noqa: ANN401  # aiokafka has no types
        """Yield the code (0: done) and the message for each user."""
        return ((code, text) for _, code, text, *_ in answer.results)


_RESOURCES: Final = {"topic": 2, "group": 3, "cluster": 4, "transactional-id": 5}
_LITERAL, _PREFIXED = 3, 4
_OPERATIONS: Final = {"Read": 3, "Write": 4, "Create": 5, "Alter": 7, "Describe": 8, "DescribeConfigs": 10}
_ALLOW: Final = 3
_EVERY_HOST: Final = "*"


class CreateAcls(Request[CreateAclsRequest_v1]):  # type: ignore[misc]  # aiokafka has no types
    """``CreateAcls`` for several rights at once; existing ones are kept."""

    API_KEY = 30

    def __init__(self, rights: Iterable[Right]) -> None:
        self._acls = [
            (
                _RESOURCES[right.resource],
                right.name,
                _PREFIXED if right.prefixed else _LITERAL,
                f"User:{right.role.login}",
                _EVERY_HOST,
                _OPERATIONS[operation],
                _ALLOW,
            )
            for right in rights
            for operation in right.operations
        ]

    def build(self, request_struct_class: type[CreateAclsRequest_v1]) -> CreateAclsRequest_v1:
        """Return the request as aiokafka sends it."""
        return request_struct_class(self._acls)

    @staticmethod
    def results(answer: Any) -> Iterable[tuple[int, str]]:  # noqa: ANN401  # aiokafka has no types
        """Yield the code (0: done) and the message for each operation of a right."""
        return ((code, text) for code, text in answer.creation_responses)
