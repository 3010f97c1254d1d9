"""Plans: where endpoints are to be, and how the running system gets there (docs/protocol.md section 5)."""
