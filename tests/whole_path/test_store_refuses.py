"""A store that lets nobody in: each command that opens a table says the same, with one kind and one exit code.

In a normal run each command has a table in one kind of store; ``--every-case`` has all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from lancewal_core.cli.program import run
from lancewal_core.errors import ASKS_FOR_A_PERSON, StoreRefused
from tests.core.cli.test_groups import ALONE
from tests.core.store.test_refusal import refusing
from tests.support.store_addresses import at_server
from tests.whole_path.feed import COLUMNS

NO_TABLE = {"catalog migrate", "config check", "config init", "config show", "demo", "estimate", "flusher spark-script"}
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
    "schema accept": ["7"],
    "repair restored": ["--rows-since", "replay"],
    "repair segment": ["_lancewal/wal/0190f000-0000-7000-8000-000000000000/00000000000000000001.arrow"],
    "resume": ["ingest"],
    "store check": ["ADDRESS"],
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


CODES = {"s3": "AccessDenied", "gs": "AccessDenied", "abfss": "AuthorizationPermissionMismatch"}


@pytest.fixture(scope="module")
def endpoints() -> Iterator[dict[str, str]]:
    with ExitStack() as stack:
        yield {kind: stack.enter_context(refusing(403, code, "Access Denied.")) for kind, code in CODES.items()}


@pytest.mark.in_turns("kind", "name", each=3)
@pytest.mark.parametrize("kind", CODES)
@pytest.mark.parametrize("name", sorted(ALONE.keys() - NO_TABLE - SERVICES))
def test_a_refusal_has_one_kind_and_one_exit_code(
    name: str, kind: str, endpoints: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    uri, options = at_server(kind, endpoints[kind], "orders")
    config = tmp_path / "lancewal.yaml"
    tree = {
        "table": {
            "uri": uri, "topic": "orders", "columns": dict(COLUMNS), "primary_key": ["customer", "id"],
            "region_key": ["customer"],
        },
        "catalog": {"root": f"{uri}-lake"},
        "kafka": {"bootstrap_servers": "127.0.0.1:9"},
        "storage": {"options": dict(options)},
        "registry": {"url": "http://127.0.0.1:9"},
    }  # fmt: skip
    config.write_text(yaml.safe_dump(tree))
    arguments = [word.replace("FOLDER", str(tmp_path)).replace("ADDRESS", uri) for word in ARGUMENTS.get(name, [])]
    confirmed = ["--yes"] if any("--yes" in parameter.opts for parameter in ALONE[name].params) else []
    assert run([*name.split(), *arguments, *confirmed, "-c", str(config)]) == ASKS_FOR_A_PERSON
    said = capsys.readouterr()
    (line,) = said.err.splitlines()[-1:]
    assert line.startswith(f"lancewal: {StoreRefused.kind}: ")
    for part in (uri, CODES[kind], "grant these credentials the rights", "storage.options"):
        assert part in line
    assert said.out == ""
