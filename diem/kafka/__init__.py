"""What the project's processes say to Kafka: connection, names, topics, metadata and the publisher of updates."""
