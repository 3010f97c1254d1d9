"""The publisher: reads the store's changes and writes them to Kafka (docs/internals.md section 3).

Reading order: ``publisher`` opens the log, and reopens it after every fault; ``session`` runs the tasks of one
connection; ``backlog`` queues the changes of each partition (pure); ``senders`` keep one request in flight for each
partition; ``refusals`` handles records that brokers refuse (pure); ``offsets`` has what is known of each log, which
``log_monitor`` compares with its bounds; ``forgetting`` has tombstones written of what the store may forget then;
``log`` is the shell over Kafka, ``store_view`` what is used of the store.
"""

from services.data.publisher.publisher import Publisher

__all__ = ["Publisher"]
