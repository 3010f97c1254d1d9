"""Sources of records: how fast they are, how soon, and whether kills lose or double anything.

Reading order: ``oracle`` (what the store must have), ``kills`` (any origin), ``topic`` (a Kafka topic), ``apart`` (the
negative control), ``rates``; ``table`` and ``postgres`` (a published table).
"""
