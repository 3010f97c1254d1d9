"""The Data Service: owns the datasets, versions every change, and serves the data and the feed of changes."""
