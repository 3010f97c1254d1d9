"""The bridge: reads every partition of the updates topic and serves it, as a feed, to one WebSocket server."""
