"""nginx in front of the cloned WebSocket servers: its configuration, and where the program is."""
