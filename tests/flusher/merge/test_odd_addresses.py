"""A table whose folder has odd characters in its name: merges and plain Lance find the same rows, on each store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lancewal_demo.stack import S3Server
from tests.support.flusher_tables import COMBINE, FlusherTable, delete, patch, upsert, upserts
from tests.support.small_s3.server import SmallS3

EVERYWHERE = " a b+c&d=e@f:g;h'i\"j!k$l(m)n*o,p<q>r[s]t\\u^v`w{x|y}z~äあ😀\u00a0\u202e\x85-_.0 "
PERCENT = "100%.a%zz"
LOCAL = "a%20b%2Fc?d#e"


@pytest.fixture
def small_s3() -> Iterator[SmallS3]:
    with SmallS3() as server:
        yield server


def merged(table: FlusherTable) -> None:
    """Rows adopted, deletion vectors, columns in place, a combined merge; ``check`` reads by plain Lance."""
    table.generation(0, upserts(range(20)))
    table.round()
    table.generation(0, [upsert(3, a=7), delete(4), patch(5, a=9)])
    table.round()
    table.check()
    assert any(fragment.deletion_file() for fragment in table.dataset.get_fragments())
    table.generation(0, [patch(6, a=9), upsert(21, a=1)])
    table.round(COMBINE)
    table.check()
    table.close()


@pytest.mark.parametrize("name", [EVERYWHERE, PERCENT, LOCAL])
def test_a_local_folder(name: str, tmp_path: Path) -> None:
    merged(FlusherTable(tmp_path / name, partitions=1))


@pytest.mark.parametrize("name", [EVERYWHERE, PERCENT])
def test_a_store_in_memory(name: str, small_s3: SmallS3) -> None:
    merged(FlusherTable(f"s3://lake/{name}", partitions=1, storage=small_s3.options))


@pytest.mark.s3
def test_a_store(s3: S3Server) -> None:
    options = {name.lower(): value for name, value in s3.environment.items()}
    merged(FlusherTable(f"s3://{s3.bucket('odd')}/{EVERYWHERE}{PERCENT}", partitions=1, storage=options))
