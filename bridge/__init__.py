"""The bridge: reads every partition of the updates topic and serves it, as a feed, to one WebSocket server.

Reading order: ``serving`` takes one reader at a time, ``session`` resumes where the reader is, ``reading`` is the loop,
``records`` checks and encodes, ``told`` and ``positions`` keep the state of each partition, ``consumer`` and
``fetched`` wrap aiokafka, ``member`` is the consumer group, ``map_feed`` and ``owners_feed`` are the side channels.
"""
