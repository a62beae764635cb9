"""A failover that loses the catalog's last commits: a running flusher names what was lost, and mends what folders prove."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, cast

import lance
import pytest
from structlog.testing import capture_logs

from lancewal_core.catalog.catalog import StoredCatalog
from lancewal_core.catalog.opened import catalog_of
from lancewal_core.errors import StoreUnavailable
from lancewal_core.settings.load import Settings
from lancewal_core.settings.sections import CatalogSettings
from lancewal_flusher.catalog import check
from lancewal_flusher.service import reports
from lancewal_kafka.topic import TopicInspector
from lancewal_tables.catalog.making import make_named
from lancewal_tables.catalog.rebuild import rebuild
from lancewal_tables.define.attach import attach_table
from tests.flusher.service.test_reports import Flusher, reported, until
from tests.support.catalog_entries import shown
from tests.support.postgres import DATABASE, PASSWORD, PostgresServer
from tests.tables.cuts.lake import TABLES, Lake
from tests.tables.define.test_copies import ROWS, NoBroker, settings_of


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    made = Lake(tmp_path)
    made.produce(20)
    yield made
    made.close()


def opened(settings: Settings) -> StoredCatalog:
    catalog = catalog_of(settings)
    assert catalog is not None
    return catalog


def over(url: str, root: Path, uri: Path | None = None) -> Settings:
    """Return settings with the catalog in the database ``url``, whose new tables lie in ``root``."""
    catalog = {"kind": "postgres", "url": url, "password": PASSWORD, "root": str(root)}
    return settings_of(uri or root).model_copy(update={"catalog": CatalogSettings.model_validate(catalog)})


def attach(settings: Settings, name: str) -> None:
    lance.write_dataset(ROWS, settings.table.uri)
    make_named(partial(attach_table, inspector=cast("TopicInspector", NoBroker())), settings, name, lambda text: None)


def differences(logged: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, bool]]:
    return [(line["name"], line["kind"], line["mended"]) for line in logged if line["event"] == "catalog_differs"]


def test_what_a_failover_lost_is_named_mended_and_rebuilt(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The promoted replica lacks an entry, whose table lies in the root, and a cut.  The flusher has nothing to merge.

    Its first check fails, and is repeated."""
    monkeypatch.setattr(reports, "EVERY_S", 0.05)
    monkeypatch.setattr(reports, "ASK_S", 0.0)
    fails = [StoreUnavailable("away")]
    checked = check.check_catalog

    def check_catalog(*given: Any, mend: bool) -> Any:
        if fails:
            raise fails.pop()
        return checked(*given, mend=mend)

    monkeypatch.setattr(check, "check_catalog", check_catalog)
    with ExitStack() as stack, capture_logs() as logged:
        primary = stack.enter_context(PostgresServer())
        alone = opened(over(primary.database(), lake.root))
        for name, entry in lake.catalog.tables().items():
            assert alone.swap_table(name, None, entry)
        replica = primary.replica()
        stack.callback(replica.close)
        both = f"postgresql://postgres@127.0.0.1:{primary.port},127.0.0.1:{replica.port}/{DATABASE}"
        settings = over(both, lake.root)
        catalog = lake.catalog = opened(settings)
        cut = lake.make("june")
        lost = "shop.returns"
        attach(over(both, lake.root, lake.root / f"{lost}.lance"), lost)
        before = shown(catalog)
        assert sorted(before[0]) == sorted([*TABLES, lost])
        running = Flusher(both, stack, str(lake.root))
        running.works()
        until(lambda: reported(primary))
        primary.kill()
        replica.start()
        replica.promote()
        until(lambda: len(differences(logged)) >= 2)
        assert sorted(differences(logged)) == [("june", "no-cut", False), (lost, "no-entry", True)]
        names = [
            line["event"] for line in logged if line["event"].startswith("catalog") and "differs" not in line["event"]
        ]
        assert [name for name in names if name not in ("catalog_silent", "catalog_answers_again")] == [
            "catalog_went_back", "catalog_check_failed",
        ]  # fmt: skip
        assert shown(catalog) == (before[0], {})
        done = rebuild(catalog, settings, [str(lake.root)])
        assert (done.tables, done.cuts, done.findings) == ([], [cut.name], [])
        assert shown(catalog) == before
        assert check.check_catalog(catalog, settings, mend=False) == []
        lake.check(cut)
        anew = over(replica.database(), lake.root)  # empty again
        done = rebuild(opened(anew), anew, [str(lake.root)])
        assert (sorted(done.tables), done.cuts, done.findings) == (sorted([*TABLES, lost]), [cut.name], [])
        assert shown(opened(anew)) == before


def test_a_cut_that_cannot_be_lost_is_not_named(lake: Lake, postgres: PostgresServer) -> None:
    """Neither one that is there, nor one that lacks a snapshot, nor one whose time is over."""
    settings = over(postgres.database(), lake.root)
    catalog = opened(settings)
    for name, entry in lake.catalog.tables().items():
        assert catalog.swap_table(name, None, entry)
    found = partial(check.check_catalog, catalog, settings, mend=True)
    lake.catalog = catalog
    made = {name: lake.make(name) for name in ("whole", "lacks", "lost")}
    over_now = lake.make("over", for_ms=1)
    assert found() == []
    for cut in (made["lacks"], made["lost"], over_now):
        assert catalog.swap_cut(cut.name, cut, None)
    snapshot = made["lacks"].tables["shop.items"].snapshot
    assert snapshot is not None
    lance.dataset(lake.of["shop.items"].uri).branches.delete(snapshot)
    (only,) = found()
    assert (only.name, only.kind, only.mended, only.uri) == ("lost", "no-cut", False, "")
    assert "lancewal catalog rebuild" in only.text
    assert dict(catalog.cuts()) == {"whole": made["whole"]}
