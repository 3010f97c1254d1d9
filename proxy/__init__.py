"""The multiplexing proxy: clients that know nothing of partitions in front, the servers that own them behind."""
