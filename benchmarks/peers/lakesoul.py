"""LakeSoul's native writer and reader: upserts are sorted files beside the others, and reads merge them by key.

Four hash buckets, Parquet.  Its Python package has no call that compacts.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.peers.postgres import Postgres

_BUCKETS = 4
_THREADS = 2
_METADATA = """
create table namespace (
    namespace text primary key, properties json, comment text, domain text default 'public');
insert into namespace (namespace, properties, comment) values ('default', '{}', '');
create table table_info (
    table_id text primary key, table_namespace text default 'default', table_name text, table_path text,
    table_schema text, table_schema_arrow_ipc bytea, table_schema_arrow_ipc_json_hash text, properties json,
    partitions text, domain text default 'public');
create table table_name_id (
    table_name text, table_id text, table_namespace text default 'default', domain text default 'public',
    primary key (table_name, table_namespace));
create table table_path_id (
    table_path text primary key, table_id text, table_namespace text default 'default', domain text default 'public');
create type data_file_op as (path text, file_op text, size bigint, file_exist_cols text);
create table data_commit_info (
    table_id text, partition_desc text, commit_id uuid, file_ops data_file_op[], commit_op text,
    committed boolean default false, timestamp bigint, domain text default 'public',
    primary key (table_id, partition_desc, commit_id));
create table partition_info (
    table_id text, partition_desc text, version int, commit_op text,
    timestamp bigint default (date_part('epoch', now()) * 1000)::bigint, snapshot uuid[], expression text,
    domain text default 'public', primary key (table_id, partition_desc, version));
create table global_config (key text primary key, value text);
create table discard_compressed_file_info (
    file_path text primary key, table_path text, partition_desc text, timestamp bigint, t_date date);
"""
"""What LakeSoul 2.0.0 keeps its metadata in."""


class LakeSoulPeer:
    """A ``Peer`` without Spark."""

    def __init__(self, folder: Path) -> None:
        from lakesoul.catalog import LakeSoulCatalog

        self._folder = folder
        self._metadata = Postgres()
        self._metadata.sql(_METADATA)
        url = f"jdbc:postgresql://127.0.0.1:{self._metadata.port}/postgres"
        self._catalog: Any = LakeSoulCatalog(pg_url=url, pg_username="postgres", pg_password="postgres")
        self._table: Any = None
        self._schema = pa.schema([])
        self._given = pa.table({})

    def pids(self) -> list[int]:
        return [self._metadata.pid]

    def close(self) -> None:
        self._metadata.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def create(self, rows: Path) -> None:
        found = pq.read_schema(next(rows.glob("*.parquet"))).remove_metadata()
        self._schema = found.set(0, found.field("id").with_nullable(False))
        self._table = self._catalog.create_table(
            "upserted",
            path=f"file://{self._folder}",
            schema=self._schema,
            primary_keys=["id"],
            hash_bucket_num=_BUCKETS,
        )
        self._write(self._read(rows))

    def give(self, rows: Path) -> None:
        self._given = self._read(rows)

    def upsert(self) -> None:
        self._write(self._given)

    def aggregate(self) -> tuple[int, int, float]:
        rows, a, b = 0, 0, 0.0
        for batch in self._scan().select("a", "b").to_batches():
            rows += batch.num_rows
            a += pc.sum(batch["a"]).as_py() or 0
            b += pc.sum(batch["b"]).as_py() or 0.0
        return rows, a, b

    def scan(self) -> int:
        return int(self._scan().to_arrow_table().num_rows)

    def compact(self) -> None:
        raise NotImplementedError("LakeSoul's Python package cannot compact")

    def _read(self, rows: Path) -> pa.Table:
        return pa.table(pq.read_table(rows).columns, schema=self._schema)

    def _write(self, rows: pa.Table) -> None:
        self._table.write_arrow(rows, format="parquet", thread_num=_THREADS)

    def _scan(self) -> Any:
        return self._catalog.table("upserted").scan().options(thread_count=_THREADS)


def open_peer(folder: Path) -> LakeSoulPeer:
    return LakeSoulPeer(folder / "table")
