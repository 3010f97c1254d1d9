"""Assignment of leaves to servers: a leaf is a partition, and Kafka's range assignor hands them out in order."""

import numpy as np

from metadata.placement.blocks import Parts


def server_of_leaf(leaves: int, servers: int) -> Parts:
    """The server of each of ``leaves`` partitions among ``servers`` members: int32[leaves].

    As Kafka's RangeAssignor lays a topic out: in order, and the first ``leaves % servers`` members have one more.
    Servers are numbered in the order of their member ids.
    """
    least, more = divmod(leaves, servers)
    counts = np.full(servers, least)
    counts[:more] += 1
    return np.repeat(np.arange(servers, dtype=np.int32), counts)


def laid_out(placement: Parts, leaves: int, servers: int) -> Parts:
    """The server of every endpoint, negative for hot ones."""
    return np.where(placement < 0, placement, server_of_leaf(leaves, servers)[placement]).astype(np.int32)
