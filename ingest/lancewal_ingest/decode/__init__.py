"""Kafka records to WAL batches."""

from lancewal_ingest.decode.json.decoder import Decoder
from lancewal_kafka.records import Decoded, Records, Rejected

__all__ = ["Decoded", "Decoder", "Records", "Rejected"]
