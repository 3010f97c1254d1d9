"""What traffic says of a window of time (docs/traffic.md section 3): its rules, and the reference without Spark."""
