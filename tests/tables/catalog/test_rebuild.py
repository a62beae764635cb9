"""A catalog made anew from the folders equals the one before; what was not found is named."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from lancewal_core.catalog.catalog import Catalog
from lancewal_core.catalog.opened import catalog_of, open_directory
from lancewal_core.cli.program import run
from lancewal_core.settings.load import Settings
from lancewal_core.settings.sections import CatalogSettings
from lancewal_tables.catalog.rebuild import rebuild
from lancewal_tables.catalog.schema import make_schema
from tests.support.postgres import DATABASE, PASSWORD, PostgresServer
from tests.tables.cuts.lake import TABLES, Lake


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    made = Lake(tmp_path)
    made.produce(20)
    yield made
    made.close()


def shown(catalog: Catalog) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """All that a catalog holds, but when and by which write an entry was written."""
    entries = {name: one.model_dump(exclude={"changed_ms", "write_id"}) for name, one in catalog.tables().items()}
    return entries, dict(catalog.cuts())


def of_postgres(server: PostgresServer) -> Settings:
    of = CatalogSettings(kind="postgres", url=server.database(), password=PASSWORD)
    return Settings.model_validate({"catalog": of.model_dump()})


def test_a_database_made_anew_equals_the_catalog_before(lake: Lake, postgres: PostgresServer) -> None:
    for name in ("june", "july"):
        lake.make(name, for_ms=60_000 if name == "july" else None)
    settings = of_postgres(postgres)
    catalog = catalog_of(settings)
    assert catalog is not None
    done = rebuild(catalog, settings, [str(lake.root)])
    assert (sorted(done.tables), sorted(done.cuts), done.findings) == (sorted(TABLES), ["july", "june"], [])
    assert shown(catalog) == shown(lake.catalog)
    again = rebuild(catalog, settings, [str(lake.root)])
    assert (again.tables, again.cuts, again.findings) == ([], [], [])
    assert shown(catalog) == shown(lake.catalog)


def test_what_is_not_found_is_named_and_nothing_is_changed(lake: Lake, tmp_path: Path) -> None:
    whole = lake.make("whole", "shop.orders")
    broken = lake.make("broken")
    gone = lake.of["shop.items"]
    shutil.rmtree(gone.uri)
    other = tmp_path / "other"
    other.mkdir()
    catalog = open_directory(str(other))
    taken = lake.catalog.tables()["shop.items"].model_copy(update={"name": "shop.orders"})
    assert catalog.swap_table("shop.orders", None, taken)
    done = rebuild(catalog, Settings(), [str(lake.root)])
    assert (done.tables, done.cuts) == ([], ["whole"])
    assert dict(catalog.cuts()) == {"whole": whole}
    assert catalog.table("shop.orders") == taken
    assert [text for text in done.findings if f"cut {broken.name}: no snapshot of it was found in shop.items" in text]
    assert [text for text in done.findings if text.startswith("shop.orders: the catalog names")]
    assert len(done.findings) == 2


def test_the_commands_make_warn_and_rebuild(
    lake: Lake, postgres: PostgresServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The test's server has no fsync."""
    cut = lake.make("june")
    url = postgres.database()
    postgres.run("DROP SCHEMA lancewal CASCADE", DATABASE)
    config = tmp_path / "postgres.yaml"
    config.write_text(yaml.safe_dump({"catalog": {"kind": "postgres", "url": url, "password": PASSWORD}}))

    def said(*words: str, code: int = 0) -> str:
        assert run(["catalog", *words, "-c", str(config)]) == code
        out = capsys.readouterr()
        assert PASSWORD not in out.out + out.err
        return out.out + out.err

    assert "lancewal catalog init" in said("migrate", code=2)
    made = said("init")
    assert "0 tables" in made
    assert "fsync is off" in made
    assert "has version 1 already" in said("migrate")
    assert "wrote 2 tables and 1 cut" in said("rebuild", "--root", str(lake.root))
    catalog = catalog_of(Settings.model_validate(yaml.safe_load(config.read_text())))
    assert catalog is not None
    assert dict(catalog.cuts()) == {"june": cut}
    assert "--root" in said("rebuild", code=2)
    config.write_text(yaml.safe_dump({"catalog": {"root": str(lake.root)}}))
    assert "has no schema" in said("migrate", code=2)


@pytest.mark.parametrize(
    ("setting", "warned"),
    [("synchronous_commit = off", "synchronous_commit is off"), ("synchronous_commit = on", "")],
)
def test_init_warns_of_a_server_that_may_lose_changes(postgres: PostgresServer, setting: str, warned: str) -> None:
    settings = of_postgres(postgres)
    postgres.run(f"ALTER DATABASE {DATABASE} SET {setting}")
    try:
        _, warnings = make_schema(settings)
    finally:
        postgres.run(f"ALTER DATABASE {DATABASE} RESET ALL")
    assert any(warned in text for text in warnings)
    assert any("synchronous_commit" in text for text in warnings) is bool(warned)
