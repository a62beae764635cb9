"""Lists of rows name to Lance what its own function names."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from lance.dataset import serialize_row_addrs
from pyroaring import BitMap

from lancewal_core.table.lance.row_mask import row_list


def named(stored: bytes) -> list[int]:
    """The rows, by the form that Lance documents: a bitmap behind the number of each fragment."""
    (count,), at, rows = struct.unpack_from("<I", stored), 4, []
    for _ in range(count):
        fragment, size = struct.unpack_from("<II", stored, at)
        rows += [(fragment << 32) + row for row in BitMap.deserialize(stored[at + 8 : at + 8 + size])]
        at += 8 + size
    assert at == len(stored)
    return rows


@pytest.mark.parametrize(
    "rows",
    [
        [0],
        [5, 3, 5, 2**32 - 1, 2**32, 7 * 2**32 + 70_000],
        list(range(10_000)),  # one run
        [(fragment << 32) + row for fragment in (9, 0, 300) for row in range(0, 200_000, 7)],
    ],
)
def test_they_name_what_lances_own_function_names(rows: list[int]) -> None:
    assert named(row_list(np.array(rows, np.uint64))) == named(serialize_row_addrs(rows)) == sorted(set(rows))
