"""Client side of Kafka: connections, topics, the partition map and group assignments.

Reading order: ``config`` (the cluster and our names), ``client`` (connections that close in bounded time), ``metadata``
(actual brokers and topics), ``topics`` (required topics, configured by ``topic_config``), ``map_reader`` and
``map_writer`` (the partition map), ``epochs`` (of a topic that is served as it is), ``assignment`` (the owners of
partitions), ``errors``.
"""
