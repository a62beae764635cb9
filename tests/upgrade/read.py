"""Run by each release's Python: ``read.py TABLE CONSISTENCY FILE`` writes the rows of a read, by public names alone."""

from __future__ import annotations

import sys

import pyarrow as pa

import lancewal

table, consistency, file = sys.argv[1:]
rows = lancewal.open_table(table).to_arrow(consistency=consistency)  # type: ignore[arg-type]  # one of the two words
with pa.OSFile(file, "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
    writer.write_table(rows)
