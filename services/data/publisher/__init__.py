"""The publisher: a reader of the store's changes that writes them to Kafka (docs/protocol.md section 3)."""

from services.data.publisher.publisher import Publisher

__all__ = ["Publisher"]
