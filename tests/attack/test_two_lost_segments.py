"""Two segments in a row that are lost, with later ones there."""

from __future__ import annotations

from pathlib import Path

import pytest

from lancewal_core import paths
from lancewal_core.errors import LancewalError
from lancewal_core.ids import Sequence
from lancewal_reader import open_table
from tests.audit.test_repair_segment import damage, feed, index_of
from tests.support.pipeline import Pipeline


@pytest.mark.xfail(strict=True, reason="behind the last number of a window a walk looks at one more number only")
def test_a_strong_read_does_not_end_before_them(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, partitions=1, seed=23, seal_rows=10_000, batch=12)
    feed(pipeline, 6)
    record = index_of(pipeline, 0).generations[-1]
    for n in (1, 2):
        key = paths.wal_segment(record.log, Sequence(record.first_sequence + n))
        damage(Path(pipeline.uri) / key, "lost")
    with pytest.raises(LancewalError, match="lancewal repair segment"):
        open_table(pipeline.uri).to_arrow()
