"""The flusher: makes tables, merges snapshots into them, and shows how far they have come."""
