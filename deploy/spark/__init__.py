"""What Spark is run with on this machine."""
