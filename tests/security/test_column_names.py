"""Column names from a hostile hand: refused by name where the table could not carry them, else data like all others."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lancewal_audit.verify.verification import VerifyRequest, verify_table
from lancewal_core.errors import InvalidSchema, InvalidSettings
from lancewal_core.rows.schema import RowSchema, check_row_schema
from lancewal_core.settings.load import Settings, load_settings
from lancewal_core.settings.sections import TableSettings
from lancewal_flusher.upkeep.compact_all import compact_to_the_end
from lancewal_flusher.upkeep.compaction_plan import CompactionLimits
from lancewal_reader.table import open_table
from lancewal_tables.load.whole import load_files
from tests.security.test_object_keys import HOSTILE
from tests.support.pipeline import KEY, Pipeline, by_key

NAMES = (
    *(name for name in HOSTILE if name != "\ud800"),  # see below
    "a`b",
    'a"b',
    "a'b",
    "a\tb",
    "SELECT",
    "region\u0000",
    "_rowid",
    "_op",
    "x; --",
    "a,b",
    "(a)",
    "NULL",
    "1",
    "_id",
    "_airbyte_raw_id",
    "__op",
    "a b c",
    "\U0001f986",
    "twin",
    "Twin",
    "TWIN",
)
REFUSED = tuple(n for n in NAMES if not n or n in ("_rowid", "_op") or n == "*" or any(c in ".`\x00" for c in n))


@pytest.mark.parametrize("name", REFUSED, ids=ascii)
def test_a_name_that_a_table_cannot_carry_is_refused(name: str) -> None:
    columns = pa.schema([*KEY, pa.field(name, pa.int64())])
    with pytest.raises(InvalidSchema, match=r"is not allowed|is reserved"):
        check_row_schema(RowSchema(columns, ("region", "id"), ("region",)))


def test_half_a_surrogate_is_refused_where_it_is_read() -> None:
    """JSON can write it; no Arrow schema takes it, and no terminal shows it."""
    with pytest.raises(InvalidSettings, match="not Unicode text") as caught:
        load_settings(None, {"LANCEWAL_TABLE__COLUMNS": '{"\\ud800": "int64"}'})
    str(caught.value).encode()


def all_columns() -> pa.Schema:
    names = [name for name in dict.fromkeys(NAMES) if name not in REFUSED]
    return pa.schema([*KEY, *(pa.field(name, pa.string()) for name in names)])


def test_all_others_are_loaded_compacted_verified_and_searched(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, all_columns(), partitions=2)
    names = pipeline.contract.rows.columns.names[2:]
    pipeline.produce(150)
    pipeline.merge_all()
    pipeline.produce(50)
    pipeline.merge_all()
    file, loaded = (
        tmp_path / "rows.parquet",
        {"region": "loaded", "id": 1, **{name: f"loaded {name}" for name in names}},
    )
    pq.write_table(pa.Table.from_pylist([loaded], all_columns()), file)
    settings = Settings(table=TableSettings(uri=pipeline.uri))
    load_files(settings, [str(file)])
    done = compact_to_the_end(pipeline.flusher(), CompactionLimits(), with_sentinel=True)
    assert done.fragments_after < done.fragments_before
    pipeline.produce(50)
    pipeline.ingest()
    table = open_table(pipeline.uri)
    assert by_key(table.to_arrow()) == {**pipeline.oracle, ("loaded", 1): loaded}
    found = verify_table(settings, pipeline.uri, VerifyRequest(sources="wal"))
    assert found.equal, found.findings
    assert sorted(table.to_pandas().columns) == sorted(["region", "id", *names])
    for name in names:
        lance.dataset(pipeline.uri).create_scalar_index(name, "INVERTED", name=f"words{names.index(name)}")
        shown = table.search(text="loaded", text_columns=[name], columns=["region", name]).to_arrow().to_pylist()
        assert [(row["region"], row[name]) for row in shown] == [("loaded", f"loaded {name}")], name
    pipeline.close()


def test_all_others_are_data(tmp_path: Path) -> None:
    """Through segments, snapshots, merges, patches, projections and filters; and no name becomes a part of a key."""
    names = [name for name in dict.fromkeys(NAMES) if name not in REFUSED]
    pipeline = Pipeline(tmp_path, pa.schema([*KEY, *(pa.field(name, pa.string()) for name in names)]), partitions=2)
    pipeline.produce(150)
    pipeline.merge_all()
    pipeline.produce(100)
    pipeline.ingest()
    table = open_table(pipeline.uri)
    assert by_key(table.to_arrow()) == pipeline.oracle
    for name in names:
        quoted = f"`{name}` IS NULL"
        found = table.to_arrow(columns=["region", "id", name], filter=quoted)
        expected = {key for key, row in pipeline.oracle.items() if row[name] is None}
        assert set(by_key(found)) == expected, name
    keys = {path.relative_to(pipeline.uri).as_posix() for path in Path(pipeline.uri).rglob("*")}
    assert not [name for name in names if len(name) > 2 and any(name in key for key in keys)]
    pipeline.close()
