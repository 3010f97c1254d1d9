"""Subscriptions, retained updates, and the delivery of frames to sessions. Pure: no I/O, no clocks.

Reading order: ``session`` (one client, and conflation while it is blocked), ``read_meter`` (counts data by API key),
``data_budget`` (how much data is retained), ``compressed_frames``, ``fanout`` (registry and delivery), ``feed_state``
(retained updates and positions of a feed), ``feed_hub`` (both combined: a server), ``ownership`` (which endpoints a
server of a group serves, and ``moved``), ``change_map`` (the source of a feed).
"""
