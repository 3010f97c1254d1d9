"""HTTP clients of the running services, for commands and the operator page."""
