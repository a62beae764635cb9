"""Errors of Lance that tell of a damaged file in words of the store's."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lancewal_core.errors import ObjectCorrupt, StoreUnavailable
from lancewal_core.table.lance.errors import reading

BEYOND_ITS_END = (
    "External error: LanceError(IO): Generic memory error: Invalid range 64..34128 for object of size 4054 bytes",
    "LanceError(IO): Generic S3 error: 416 Range Not Satisfiable",
    "LanceError(IO): failed to fill whole buffer",
)


@pytest.mark.parametrize("text", BEYOND_ITS_END)
@pytest.mark.parametrize("file", ["a.lance", None])
def test_a_place_beyond_a_file_s_end_is_damage_and_no_fault_of_the_store(text: str, file: str | None) -> None:
    with pytest.raises(ObjectCorrupt, match=file or "a file of the table"), reading("a look", file):
        raise pa.ArrowInvalid(text)


@pytest.mark.parametrize("file", ["a.lance", None])
def test_a_store_that_does_not_answer_is_no_damage(file: str | None) -> None:
    with pytest.raises(StoreUnavailable, match="503"), reading("a look", file):
        raise pa.ArrowInvalid("External error: LanceError(IO): Generic S3 error: 503 Service Unavailable")
