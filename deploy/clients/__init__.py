"""HTTP clients of the running services."""
