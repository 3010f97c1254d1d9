"""Sources of Kafka topics: every partition is read by the process that has the store, from its stored position.

Reading order: ``table`` (the keys of ``[[source]]``), ``positions`` (where a partition is read from, pure), ``formats``
(keys and values) with ``registry`` (their schemas), ``reader`` (the client's consumer), ``source``.
"""
