"""A blob column of another program, in each of the forms that Lance has."""

from __future__ import annotations

from typing import Any

import lance
import pyarrow as pa

BLOBS = {"old, 2.0": "2.0", "old, 2.1": "2.1", "new, 2.2": "2.2"}
"""Forms of blobs, each with a file format that has it."""


def add_blobs(dataset: Any, form: str) -> None:
    """Add the column ``blob``, whose values are ``b"x<id>"``."""
    old = form.startswith("old")
    marked = pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    field = marked if old else lance.blob_field("blob")

    @lance.batch_udf(output_schema=pa.schema([field]))
    def compute(batch: pa.RecordBatch) -> pa.RecordBatch:
        values = [b"x%d" % id for id in batch["id"].to_pylist()]
        array = pa.array(values, pa.large_binary()) if old else lance.blob_array(values)
        return pa.record_batch([array], schema=pa.schema([field]))

    dataset.add_columns(compute, read_columns=["id"])


def blobs(dataset: Any) -> list[bytes | None]:
    """Return the blobs in the order of the rows."""
    found = dataset.take_blobs("blob", indices=list(range(dataset.count_rows())))
    return [None if blob is None else blob.readall() for blob in found]
