"""Shells: WebSocket connections over websockets' sans-IO protocols, and the feeds and clients that use them."""
