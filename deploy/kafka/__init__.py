"""A real Kafka on this machine: its jars, a Java, and one or three brokers on loopback.

Reading order: ``program`` (its command line), ``java``, ``jars``, ``cluster``, ``brokers``, ``processes``; for brokers
with users ``credentials``, ``certificate``, ``rights``, ``users``.
"""
