"""A catalog made anew from the folders equals the one before; what was not found is named."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import lance
import pytest
import yaml

from lancewal_core.catalog.opened import catalog_of, open_directory
from lancewal_core.cli.program import run
from lancewal_core.errors import InvalidInput, ObjectCorrupt, TableMissing
from lancewal_core.names import paths
from lancewal_core.open import Address
from lancewal_core.settings.load import Settings
from lancewal_core.settings.sections import CatalogSettings
from lancewal_core.table.contract import Contract
from lancewal_flusher.catalog import check
from lancewal_flusher.catalog.check import check_catalog
from lancewal_tables.catalog.rebuild import rebuild
from lancewal_tables.catalog.registration import forget_table, register_table
from lancewal_tables.catalog.root import make_schema
from tests.support.catalog_entries import entry, shown
from tests.support.postgres import DATABASE, PASSWORD, PostgresServer
from tests.tables.cuts.lake import TABLES, Lake


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    made = Lake(tmp_path)
    made.produce(20)
    yield made
    made.close()


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


@pytest.mark.parametrize("registered", [False, True])
@pytest.mark.parametrize("folder", ["a", "z"])
def test_a_copy_of_a_table_is_no_part_of_a_cut(lake: Lake, tmp_path: Path, folder: str, registered: bool) -> None:
    """The copy has the snapshots of the table, and comes before it or after it.  Contracts that name no place, as here, do
    not tell a copy from its table."""
    cut = lake.make("june")
    copy = lake.root / f"{folder}.lance"
    shutil.copytree(lake.of["shop.orders"].uri, copy)
    settings = Settings.model_validate({"table": {"uri": str(copy)}, "catalog": {"root": str(lake.root)}})
    if registered:
        register_table(lake.catalog, settings, folder)
    (tmp_path / "empty").mkdir()
    catalog = open_directory(str(tmp_path / "empty"))
    done = rebuild(catalog, settings, [str(lake.root)])
    assert dict(catalog.cuts()) == {"june": cut}
    assert done.findings == []
    assert [one.name for one in check_catalog(lake.catalog, settings)] == ([] if registered else [folder])
    assert lake.catalog.swap_cut("june", cut, None)
    lost = [one.name for one in check_catalog(lake.catalog, settings) if one.kind == "no-cut"]
    assert lost == ["june"]
    shutil.rmtree(lake.of["shop.orders"].uri)
    (tmp_path / "second").mkdir()
    done = rebuild(open_directory(str(tmp_path / "second")), settings, [str(lake.root)])
    assert done.cuts == []
    assert "cut june: no snapshot of it was found in shop.orders" in done.findings
    assert [one for one in check_catalog(lake.catalog, settings) if one.kind == "no-cut"] == []


@pytest.mark.parametrize(
    ("note", "text", "said"),
    [
        ("lancewal.receipt", "", "shop.orders: the notes of snapshot june-"),
        ("lancewal.receipt", "lw1odd", "shop.orders: the notes of snapshot june-"),
        ("lancewal.created_at", "1905-01-01T00:00:00+00:00", ""),
        ("lancewal.until", "1905-01-01T00:00:00+00:00", "cut june: the notes of its snapshots prove no cut"),
        ("lancewal.cut", "{}", "shop.orders: the notes of snapshot june-"),
    ],
)
def test_odd_notes_of_a_snapshot_prove_no_cut(lake: Lake, tmp_path: Path, note: str, text: str, said: str) -> None:
    """Whatever stands there is a finding, and all else is found and written."""
    cut, kept = lake.make("june"), lake.make("july")
    branches = lance.dataset(lake.of["shop.orders"].uri).branches
    snapshot = cut.tables["shop.orders"].snapshot
    assert snapshot is not None
    branches.replace_metadata(snapshot, {**branches.list()[snapshot]["metadata"], note: text})
    (tmp_path / "empty").mkdir()
    catalog = open_directory(str(tmp_path / "empty"))
    done = rebuild(catalog, Settings(), [str(lake.root)])
    assert sorted(done.tables) == sorted(TABLES)
    assert dict(catalog.cuts()) == {"july": kept} if said else {"july": kept, "june": cut}
    assert [one for one in done.findings if one.startswith(said)] or not said
    lacks = [(one.name, one.kind) for one in check_catalog(lake.catalog, Settings())]
    assert lacks == ([("june", "incomplete-cut")] if note == "lancewal.receipt" else [])


@pytest.mark.parametrize("kind", ["directory", "postgres"])
def test_a_damaged_record_of_a_cut_is_named_and_comes_back(
    lake: Lake, request: pytest.FixtureRequest, kind: str
) -> None:
    """Until then no table is forgotten: nobody knows which ones the cut holds."""
    cut = lake.make("june")
    settings, catalog, key = Settings(), lake.catalog, paths.kept_cut("june")
    record, named = lake.root / key, key
    if kind == "postgres":
        server = request.getfixturevalue("postgres")
        settings = of_postgres(server)
        opened = catalog_of(settings)
        assert opened is not None
        catalog, named = opened, "june in lancewal.cuts"
        rebuild(catalog, settings, [str(lake.root)])
        server.run("UPDATE lancewal.cuts SET content = '{}'", DATABASE)
    else:
        server = None
        record.write_bytes(b"{}")
    with pytest.raises(ObjectCorrupt, match=re.escape(named)):
        forget_table(catalog, "shop.items")
    assert sorted(catalog.tables()) == sorted(TABLES)
    if server is None:
        record.unlink()
    else:
        server.run("DELETE FROM lancewal.cuts", DATABASE)
    assert rebuild(catalog, settings, [str(lake.root)]).cuts == ["june"]
    assert dict(catalog.cuts()) == {"june": cut}
    with pytest.raises(InvalidInput, match="june"):
        forget_table(catalog, "shop.items")


def test_entries_that_no_settings_would_name_are_findings(lake: Lake, tmp_path: Path) -> None:
    """Somebody wrote them by SQL, or a server gives them.  All else is compared and written."""
    odd = {"a": "s3a://lake/t", "b": "s3://KEY:SECRET@lake/t", "c": "nothing://x", "d": "~/t", "e": "\0"}
    for name, uri in odd.items():
        assert lake.catalog.swap_table(name, None, entry(name, uri))
    found = check_catalog(lake.catalog, Settings())
    assert [one.name for one in found] == list(odd)
    assert "SECRET" not in "".join(one.text for one in found)
    (tmp_path / "empty").mkdir()
    done = rebuild(open_directory(str(tmp_path / "empty")), Settings(), [str(lake.root)])
    assert sorted(done.tables) == sorted(TABLES)


def test_the_advice_about_a_lost_cut_drops_its_snapshots(
    lake: Lake, postgres: PostgresServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also if the cut was made for another catalog: a person went over to PostgreSQL."""
    lake.make("june")
    settings = of_postgres(postgres)
    catalog = catalog_of(settings)
    assert catalog is not None
    for name, one in lake.catalog.tables().items():
        assert catalog.swap_table(name, None, one)
    (found,) = check_catalog(catalog, settings)
    advice = re.search(r"`(lancewal snapshot drop \S+ -t) TABLE`", found.text)
    assert advice is not None
    for table in lake.of.values():
        assert run([*advice[1].split()[1:], table.uri, "--yes"]) == 0
    assert check_catalog(catalog, settings) == []
    capsys.readouterr()


def test_a_check_of_many_tables_looks_at_each_place_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Comparing each folder with each entry took 90 minutes for 10,000 tables."""
    looked = 0
    follow = os.path.realpath

    def counted(path: str) -> str:
        nonlocal looked
        looked += 1
        return follow(path)

    monkeypatch.setattr(os.path, "realpath", counted)

    def looks(tables: int) -> int:
        nonlocal looked
        names = [f"t{number}" for number in range(tables)]
        below = {name: f"{lake.root}/{name}.lance" for name in names}
        monkeypatch.setattr(check, "tables_below", lambda *of: below)
        held = {name: entry(name, uri) for name, uri in below.items()}
        monkeypatch.setattr(lake.catalog, "tables", lambda: held)
        monkeypatch.setattr(Address, "contract", not_there)
        looked = 0
        check_catalog(lake.catalog, Settings())
        return looked

    assert looks(200) <= 2 * looks(100) + 10


def not_there(address: Address) -> Contract:
    raise TableMissing("it is not there")


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
