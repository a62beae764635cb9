"""A store that lets nobody in: each command that opens a table says the same, with one kind and one exit code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from lancewal_core.cli.program import run
from lancewal_core.errors import ASKS_FOR_A_PERSON, StoreRefused
from tests.core.cli.test_groups import ALONE
from tests.core.store.test_refusal import refusing
from tests.support.small_s3.server import options_of
from tests.whole_path.feed import COLUMNS

NO_TABLE = {"catalog migrate", "config check", "config show", "demo", "estimate", "flusher spark-script"}
SERVICES = {"ingest run", "flusher run"}
"""They wait until they are let in: ``tests/faults/test_told_to_stop.py``."""
ARGUMENTS = {
    "cut drop": ["one"],
    "cut make": ["one", "--tables", "*", "--up-to", "durable"],
    "cut show": ["one"],
    "catalog forget": ["shop.orders"],
    "catalog register": ["shop.orders"],
    "catalog show": ["shop.orders"],
    "changes": ["--start", "now"],
    "conflict settle": ["orders-0", "--all"],
    "get": ["[1]"],
    "inspect": ["--partition", "orders-0"],
    "offset accept-loss": ["orders-0"],
    "offset reject": ["orders-0-1"],
    "pause": ["ingest"],
    "repair generation": ["orders-0"],
    "repair index": ["some_idx"],
    "repair region": ["orders-0"],
    "repair restored": ["--rows-since", "replay"],
    "repair segment": ["_lancewal/wal/0190f000-0000-7000-8000-000000000000/00000000000000000001.arrow"],
    "resume": ["ingest"],
    "store check": ["s3://bucket/orders"],
    "search": ["--text", "word"],
    "snapshot create": ["one"],
    "snapshot drop": ["one"],
    "subscription create": ["one"],
    "subscription drop": ["one"],
    "table alter": ["--on", "misrouted=dead-letter"],
    "table export-memwal": ["FOLDER/memwal.binpb"],
    "table load": ["FOLDER", "--name", "one"],
    "table moved": ["--from", "s3://old/orders"],
}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with refusing(403, "AccessDenied", "Access Denied.") as endpoint:
        yield endpoint


@pytest.mark.parametrize("name", sorted(ALONE.keys() - NO_TABLE - SERVICES))
def test_a_refusal_has_one_kind_and_one_exit_code(
    name: str, endpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "lancewal.yaml"
    tree = {
        "table": {
            "uri": "s3://bucket/orders", "topic": "orders", "columns": dict(COLUMNS), "primary_key": ["customer", "id"],
            "region_key": ["customer"],
        },
        "catalog": {"root": "s3://bucket/orders-lake"},
        "kafka": {"bootstrap_servers": "127.0.0.1:9"},
        "storage": {"options": {**options_of(0), "aws_endpoint": endpoint}},
    }  # fmt: skip
    config.write_text(yaml.safe_dump(tree))
    arguments = [word.replace("FOLDER", str(tmp_path)) for word in ARGUMENTS.get(name, [])]
    confirmed = ["--yes"] if any("--yes" in parameter.opts for parameter in ALONE[name].params) else []
    assert run([*name.split(), *arguments, *confirmed, "-c", str(config)]) == ASKS_FOR_A_PERSON
    said = capsys.readouterr()
    (line,) = said.err.splitlines()[-1:]
    assert line.startswith(f"lancewal: {StoreRefused.kind}: ")
    for part in ("s3://bucket/orders", "AccessDenied", "grant these credentials the rights", "storage.options"):
        assert part in line
    assert said.out == ""
