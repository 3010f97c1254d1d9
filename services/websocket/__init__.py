"""The WebSocket server: holds who looks at what, and notifies exactly those browsers."""
