"""Statistics of a window of traffic (docs/traffic.md section 3): their rules, and the reference without Spark."""
