"""Ingest: consumes Kafka and makes rows durable."""
