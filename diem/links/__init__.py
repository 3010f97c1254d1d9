"""Shells: WebSocket connections over websockets' sans-IO protocols, and the feeds and clients that use them.

Reading order: ``connection`` (both sides), ``acceptor`` and ``dialer``, ``timer_wheel`` and ``link_monitor``
(keepalive); for clients ``edge``, ``gate`` and ``edge_connection``; between processes ``internal``, ``feed_server``,
``feed_reader`` and ``proxy_port``; ``http`` with ``connection_limits`` for REST; ``client`` is the Python client.
"""
