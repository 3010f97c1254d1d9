"""Why brokers do not let us in: aiokafka writes it to its log, attempt by attempt, and raises only that none did."""

import asyncio
import ssl
from collections.abc import Iterable
from typing import Final

from aiokafka.client import AIOKafkaClient
from aiokafka.conn import create_conn
from aiokafka.errors import KafkaConnectionError, KafkaError, SaslAuthenticationFailed, UnsupportedSaslMechanismError
from aiokafka.protocol.metadata import MetadataRequest

WITHIN_S: Final = 3.0
_OTHER_NAME: Final = frozenset({62, 64})
"""OpenSSL's codes for a certificate of another host name or address (X509_V_ERR_HOSTNAME_MISMATCH and so on)."""


async def why(client: AIOKafkaClient, addresses: Iterable[tuple[str, int]]) -> str:
    """What is wrong with each address, in one line, found by one more attempt; empty if they let us in now."""
    # In order: aiokafka shuffles its addresses, and the same fault is to be the same line.
    found = await asyncio.gather(*(_attempt(client, host, port) for host, port in sorted(addresses)))
    return "; ".join(dict.fromkeys(filter(None, found)))


async def _attempt(client: AIOKafkaClient, host: str, port: int) -> str | None:
    # The client has no public names for what it was made with.
    try:
        async with asyncio.timeout(WITHIN_S):
            connection = await create_conn(
                host,
                port,
                security_protocol=client._security_protocol,  # noqa: SLF001
                ssl_context=client._ssl_context,  # noqa: SLF001
                sasl_mechanism=client._sasl_mechanism,  # noqa: SLF001
                sasl_plain_username=client._sasl_plain_username,  # noqa: SLF001
                sasl_plain_password=client._sasl_plain_password,  # noqa: SLF001
            )
            try:
                # A broker that waits for a login takes the connection, and ends it at the first request.
                await connection.send(MetadataRequest([]))
            finally:
                connection.close()
    except (KafkaError, OSError, TimeoutError) as error:
        return said(error, f"{host}:{port}", client._sasl_plain_username, client._sasl_mechanism)  # noqa: SLF001
    return None


def said(error: Exception, address: str, user: str | None, mechanism: str) -> str:
    """An error of connecting to ``address`` in words that say what to change."""
    match error:
        case ssl.SSLCertVerificationError():
            hint = "" if error.verify_code in _OTHER_NAME else " (who signed it belongs into DIEM_KAFKA_CA_FILE)"
            return f"the certificate of {address} is not accepted: {error.verify_message.rstrip('.')}{hint}"
        case SaslAuthenticationFailed():
            return f"{address} does not accept user {user} with this password"
        case UnsupportedSaslMechanismError():
            return f"{address} does not offer {mechanism}"
        case TimeoutError():
            return f"{address} does not answer"
        case ssl.SSLError() | KafkaConnectionError() | ConnectionResetError():
            return f"{address} ends the connection: is it of this security protocol? ({str(error) or 'reset'})"
    return str(error) or f"{address}: {type(error).__name__}"
