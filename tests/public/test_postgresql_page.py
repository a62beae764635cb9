"""The programs of the page about PostgreSQL run as they stand, on the database of Docker Compose.

Kafka and the table are stand-ins here.  The database says which rows there must be.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lancewal
from tests.public.test_search_page import described
from tests.support.postgres import PASSWORD, PostgresServer

ROOT = Path(__file__).resolve().parents[2]
PAGE = "from-postgresql.md"
DATABASE = "page"
PLACE = '"dbname=shop"'


def program(word: str) -> str:
    """The program of the page that has this word in it."""
    text = (ROOT / "docs" / "how-to" / PAGE).read_text()
    (found,) = (code for code in re.findall(r"^ *```python\n(.*?)^ *```", text, re.M | re.S) if word in code)
    return textwrap.dedent(found)


@pytest.fixture
def shop(postgres: PostgresServer) -> Iterator[PostgresServer]:
    """A server whose database ``DATABASE`` has been made by the script of Docker Compose."""
    postgres.run(f"CREATE DATABASE {DATABASE}")
    try:
        script = ROOT / "compose" / "cdc" / "shop.sql"
        options = ["--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1", "--set", "password=secret"]
        where = {"PGHOST": "127.0.0.1", "PGPORT": str(postgres.port), "PGUSER": "postgres", "PGPASSWORD": PASSWORD}
        psql = [str(postgres.program("psql")), *options, "--file", str(script), DATABASE]
        subprocess.run(psql, env={"PATH": "/usr/bin:/bin", **where}, check=True)
        yield postgres
    finally:
        postgres.run(f"DROP DATABASE {DATABASE} WITH (FORCE)")
        postgres.run("DROP ROLE IF EXISTS debezium")


def run(code: str, shop: PostgresServer) -> None:
    assert PLACE in code
    address = f"{shop.url(DATABASE)}?password={PASSWORD}"
    exec(compile(code.replace(PLACE, repr(address)), PAGE, "exec"), {})


def test_a_dump_has_the_rows_and_types_of_the_table(
    shop: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = "SELECT i, 'n' || i, i / 100.0, to_timestamp(i), repeat('é', 300) FROM generate_series(3, 2000) i"
    shop.run(f"INSERT INTO accounts {more}", DATABASE)
    monkeypatch.chdir(tmp_path)
    run(program("ParquetWriter").replace("100_000", "700"), shop)
    found = pq.read_table("accounts.parquet")
    wanted = described(PAGE)
    assert [(field.name, field.type) for field in found.schema] == [(field.name, field.type) for field in wanted]
    rows = shop.run("SELECT id, name, balance, opened, note FROM accounts ORDER BY id", DATABASE)
    assert sorted(tuple(row.values()) for row in found.to_pylist()) == rows
    assert len(rows) == 2000


def test_a_tombstone_goes_to_each_row_that_the_source_lacks(
    shop: PostgresServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.run("TRUNCATE accounts; INSERT INTO accounts VALUES (7, 'Seven'), (8, 'Eight')", DATABASE)
    sent: list[tuple[str, str, object]] = []

    class Kafka:
        def __init__(self, settings: dict[str, str]) -> None:
            assert settings["partitioner"] == "murmur2_random"

        def produce(self, topic: str, value: object = None, key: str = "") -> None:
            with contextlib.suppress(Exception):
                shop.run("SET lock_timeout = '100ms'; INSERT INTO accounts VALUES (1, 'too early')", DATABASE)
            sent.append((topic, key, value))

        def flush(self) -> None:
            sent.append(("", "", "flushed"))

    class Table:
        def to_arrow(self, columns: list[str]) -> pa.Table:
            return pa.table({name: [1, 2, 7] for name in columns})

    monkeypatch.setattr(confluent_kafka, "Producer", Kafka)
    monkeypatch.setattr(lancewal, "open_table", lambda _: Table(), raising=False)
    run(program("LOCK TABLE"), shop)
    topic = "shop.public.accounts"
    assert sorted(sent[:-1]) == [(topic, '{"id":1}', None), (topic, '{"id":2}', None)]
    assert sent[-1] == ("", "", "flushed")
    assert shop.run("SELECT id FROM accounts ORDER BY id", DATABASE) == [(7,), (8,)], "writers wait for the tombstones"
    assert capsys.readouterr().out == "2 rows deleted\n"
