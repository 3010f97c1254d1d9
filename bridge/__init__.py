"""The bridge: reads every partition of the updates topic and serves it, as a feed, to one WebSocket server.

Reading order: ``feed_endpoint`` takes one reader at a time, ``session`` resumes where the reader is, ``consumer_loop``
reads and sends, ``records`` checks and encodes, ``stream_state`` and ``positions`` keep the state of each partition,
``consumer`` and ``fetched`` wrap aiokafka, ``member`` is the consumer group, ``map_feed`` and ``owners_feed`` are the
side channels, ``topic_watcher`` notices a topic that was replaced.
"""
