"""The size of a run, and the files from which peers get their rows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from benchmarks.keyed_rows import ROWS_PER_FRAGMENT, Base

WARM_UP_ROWS = 1_000
WARM_UPS = 3


@dataclass(frozen=True, slots=True)
class Sizes:
    """``round_rows``: upserts of a round; a smaller round has a tenth of them."""

    rows: int = 5_000_000
    rounds: int = 10
    round_rows: int = 100_000

    @property
    def small_round_rows(self) -> int:
        return self.round_rows // 10


def as_parquet(base: Base) -> Path:
    """The base's rows as a folder of files, made beside it at the first use."""
    folder = base.table.parent / "parquet"
    if not folder.exists():
        partial = folder.with_name("parquet.partial")
        pads.write_dataset(
            lance.dataset(str(base.table)).scanner().to_reader(), partial, format="parquet",
            file_options=pads.ParquetFileFormat().make_write_options(compression="zstd"),
            max_rows_per_file=3 * ROWS_PER_FRAGMENT, max_rows_per_group=3 * ROWS_PER_FRAGMENT,
        )  # fmt: skip
        partial.rename(folder)
    return folder


def write_round(rows: pa.Table, folder: Path) -> Path:
    """One file for the next round of a peer."""
    file = folder / "round.parquet"
    pq.write_table(rows, file, compression="zstd")
    return file
