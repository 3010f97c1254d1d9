"""The Broadcast node: reads the Data Service's feed once and serves it to every WebSocket server.

Reading order: ``node`` (one feed in, many out), ``settings``, ``main`` (wiring).
"""
