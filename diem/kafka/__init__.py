"""Kafka as our processes use it.

Reading order: ``config`` (the cluster and our names), ``client`` (connections that end in bounded time), ``metadata``
(brokers and topics as they are), ``topics`` (as they must be), ``map_reader`` and ``map_writer`` (the partition map),
``assignment`` (who has which partition).
"""
