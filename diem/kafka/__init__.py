"""Client side of Kafka: connections, topics, the partition map and group assignments.

Reading order: ``config`` (the cluster and our names), ``client`` (connections that end in bounded time), ``metadata``
(brokers and topics as they are), ``topics`` (as they must be, configured by ``topic_config``), ``map_reader`` and
``map_writer`` (the partition map), ``assignment`` (the owners of partitions), ``errors``.
"""
