"""A catalog that refuses a cut: no snapshot stays."""

from __future__ import annotations

import pytest

from lancewal_core.catalog.opened import open_rest
from lancewal_core.catalog.postgres_catalog import PostgresCatalog
from lancewal_core.errors import CatalogRefused, InvalidInput, LancewalError
from lancewal_flusher.cuts.positions import PositionSource
from lancewal_tables.cuts.make import CutWanted, make_cut
from tests.support.postgres import DATABASE, PASSWORD, PostgresServer
from tests.tables.cuts.lake import Lake


def snapshots_of(lake: Lake) -> list[str]:
    return [branch.name for table in lake.of.values() for branch in table.table.branches()]


def unasked(*_: object) -> dict[str, dict[int, object]]:
    raise AssertionError("nobody asks for positions")


def test_a_catalog_that_keeps_no_cuts_is_named_before_anything_is_asked(lake: Lake) -> None:
    catalog = open_rest("http://127.0.0.1:1")
    with pytest.raises(CatalogRefused, match=r"keeps no cuts: set catalog\.root"):
        make_cut(catalog, lake.members(), CutWanted("june"), PositionSource(unasked), lake.tasks)  # type: ignore[arg-type] # never called
    assert snapshots_of(lake) == []


def test_a_role_that_may_not_write_cuts_leaves_no_snapshots(lake: Lake, postgres: PostgresServer) -> None:
    url = postgres.database()
    postgres.run("CREATE ROLE reads LOGIN PASSWORD 'x'; GRANT USAGE ON SCHEMA lancewal TO reads", DATABASE)
    postgres.run("GRANT SELECT ON ALL TABLES IN SCHEMA lancewal TO reads", DATABASE)
    try:
        catalog = PostgresCatalog(postgres.url(DATABASE, "reads"), "x")
        with pytest.raises(CatalogRefused, match="permission denied for table cuts"):
            make_cut(catalog, lake.members(), CutWanted("june"), PositionSource(lake.ends), lake.tasks)
        assert snapshots_of(lake) == []
        whole = PostgresCatalog(url, PASSWORD)
        lake.check(make_cut(whole, lake.members(), CutWanted("june"), PositionSource(lake.ends), lake.tasks))
    finally:
        postgres.drop_role("reads")


@pytest.mark.parametrize("error", [InvalidInput("cannot store a value"), CatalogRefused("refuses access")])
def test_a_refused_record_leaves_no_snapshots(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, error: LancewalError
) -> None:
    def refuse(*_: object) -> bool:
        raise error

    monkeypatch.setattr(lake.catalog, "swap_cut", refuse)
    with pytest.raises(type(error), match=str(error)):
        lake.make("june")
    assert snapshots_of(lake) == []
