"""The publisher: a reader of the store's changes that writes them to Kafka (docs/protocol.md section 3).

Reading order: ``publisher`` opens the log, again after every fault, ``session`` runs the tasks of one connection,
``backlog`` is what is to be written to each partition (pure), ``senders`` have one request under way for each,
``log_monitor`` compares the log's ends with the acknowledgements, ``log`` is Kafka.
"""

from services.data.publisher.publisher import Publisher

__all__ = ["Publisher"]
