"""The installation that Spark runs with on this machine."""
