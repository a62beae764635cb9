"""Twins: the boundaries of lancewal in memory, deterministic, with faults; for tests of lancewal and of its users."""
