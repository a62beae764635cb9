"""Key catalogs and parts of key runs: sound values, or an error that names the object."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.errors import ObjectCorrupt
from lancewal_core.keys.catalog import (
    CoveredFile,
    KeyCatalog,
    KeyPart,
    KeyRun,
    RunRegion,
    decode_catalog,
    encode_catalog,
)
from lancewal_core.keys.code import code_keys
from lancewal_core.keys.run import SoughtKeys, decode_part, encode_part, find_in_part, sorted_entries
from lancewal_core.names import paths
from tests.support.fuzzing import damaged, fuzz, memory_bound, outcome

MIB = 1 << 20
KEYS = [pa.table({"k": [1, 5, 5, 9]}), pa.table({"k": ["a", "bb", "", "a"]})]
PARTS = [
    encode_part(sorted_entries(code_keys(keys), np.arange(4, dtype=np.uint32), np.zeros(4, np.uint32))) for keys in KEYS
]
_REGIONS = np.array([0, -1, 1, 0], np.int32)
PARTS += [
    encode_part(sorted_entries(code_keys(keys), np.arange(4, dtype=np.uint32), np.zeros(4, np.uint32), _REGIONS))
    for keys in KEYS
]
CATALOG = KeyCatalog(
    runs=(
        KeyRun(
            name="r",
            files=(CoveredFile(name="f.lance", rows=4),),
            parts=(KeyPart(object=paths.key_part("p"), entries=4, first=1, last=9, size=100, crc32c=1),),
            regions=(RunRegion(name="topic/id/3", position=17),),
        ),
    ),
    write_id="w",
)

_UNCHECKED = CATALOG.model_dump_json().encode()
"""As earlier releases wrote it."""


@fuzz(500)
@given(damaged(PARTS) | damaged(PARTS, in_place=True) | st.binary(max_size=200))
def test_any_and_damaged_parts(data: bytes) -> None:
    with memory_bound(64 * MIB):
        part = outcome(lambda: decode_part(pa.py_buffer(data), "part"), "part")
        if part is not None:
            for keys in KEYS:
                coded = code_keys(keys)
                if (coded.texts is None) == (part.keys.texts is None):
                    find_in_part(part, SoughtKeys(coded))


@fuzz(300)
@given(damaged([encode_catalog(CATALOG), _UNCHECKED]) | st.binary(max_size=200))
def test_any_and_damaged_catalogs(data: bytes) -> None:
    catalog = outcome(lambda: decode_catalog(data, "catalog"), "catalog")
    for run in () if catalog is None else catalog.runs:
        assert [source.region.name for source in run.merged_from] == [region.name for region in run.regions]
        for part in run.parts:
            assert paths.parse_key_part(part.object) is not None
            assert 0 <= part.entries < 2**63


def test_every_flipped_bit_and_every_truncation_of_a_catalog_is_found() -> None:
    data = encode_catalog(CATALOG)
    assert decode_catalog(data, "catalog") == decode_catalog(_UNCHECKED, "catalog") == CATALOG
    for at in range(len(data)):
        with pytest.raises(ObjectCorrupt, match="catalog"):
            decode_catalog(data[:at], "catalog")
        for bit in range(8):
            with pytest.raises(ObjectCorrupt, match="catalog"):
                decode_catalog(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :], "catalog")
