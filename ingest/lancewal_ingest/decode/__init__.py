"""Kafka records to WAL batches."""

from lancewal_ingest.decode.decoder import Decoder
from lancewal_ingest.decode.records import Decoded, Records, Rejected

__all__ = ["Decoded", "Decoder", "Records", "Rejected"]
