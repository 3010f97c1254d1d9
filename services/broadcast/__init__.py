"""The Broadcast node: reads the Data Service's feed once and serves it to every WebSocket server.

Reading order: ``node`` (applies the feed and re-serves it), ``settings``, ``main`` (wiring).
"""
