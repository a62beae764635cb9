"""One suite for every catalog: the in-memory twin, a directory in memory, in a local folder and in real servers of S3,
Azure and Google Cloud Storage, a real PostgreSQL, and pylance's server of Lance Namespace, which keeps fewer guarantees."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
from lance.namespace import RestAdapter

from lancewal_core.catalog.catalog import StoredCatalog, change_table, found_table, tables_matching
from lancewal_core.catalog.cut import Cut
from lancewal_core.catalog.directory import DirectoryCatalog
from lancewal_core.catalog.entry import TableEntry
from lancewal_core.catalog.opened import open_rest
from lancewal_core.catalog.postgres_catalog import PostgresCatalog
from lancewal_core.errors import InvalidInput, TableUnknown
from lancewal_core.process.clock import SystemClock
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.store.obstore import open_store
from tests.support.catalog_entries import cut, entry
from tests.support.postgres import PASSWORD
from tests.support.store_addresses import REAL, at_real_server
from tests.twins.memory_catalog import MemoryCatalog
from tests.twins.memory_store import MemoryStore

_ids = count(1)
WHOLE = ["memory", "directory", "folder", "postgres", "pgbouncer", *REAL]  # s3, azure, gcs
"""Catalogs that keep all guarantees."""
whole = pytest.mark.parametrize("client", WHOLE, indirect=True)
"""A test of what a catalog behind REST does not promise."""


@dataclass(frozen=True)
class Client:
    """Makes clients of one catalog, as other processes would."""

    make: Callable[[], StoredCatalog]
    root: str = "s3://lake"
    """Where tables lie.  Each entry of the suite has an address of its own."""
    addresses_only: bool = False
    """Whether the catalog tells nothing but the addresses of tables."""

    def __call__(self) -> StoredCatalog:
        return self.make()

    def entry(self, name: str = "shop.orders", **terms: object) -> TableEntry:
        return entry(name, f"{self.root}/t{next(_ids)}.lance", **terms)

    def told(self, made: TableEntry) -> object:
        """What the catalog tells of an entry."""
        return made.uri if self.addresses_only else made

    def table(self, name: str, catalog: StoredCatalog | None = None) -> object:
        """What a client sees of a table."""
        found = (catalog or self()).table(name)
        return None if found is None else self.told(found)

    def tables(self, catalog: StoredCatalog | None = None) -> list[tuple[str, object]]:
        """What a client sees of all tables, in the catalog's order."""
        return [(name, self.told(found)) for name, found in (catalog or self()).tables().items()]


def over(store: ObjectStore, tasks: ThreadTasks) -> Client:
    return Client(lambda: DirectoryCatalog(store, "s3://lake", tasks, SystemClock(), lambda: secrets.token_hex(8)))


@pytest.fixture(params=[*WHOLE, "rest"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Client]:
    tasks = ThreadTasks(2)
    yield from _clients(request, tmp_path, tasks)
    tasks.close()


def _clients(request: pytest.FixtureRequest, tmp_path: Path, tasks: ThreadTasks) -> Iterator[Client]:
    match request.param:
        case "memory":
            shared = MemoryCatalog()
            yield Client(lambda: shared)
        case "directory":
            yield over(MemoryStore(SystemClock()), tasks)
        case "folder":
            yield over(open_store(str(tmp_path)), tasks)
        case "postgres":
            database = request.getfixturevalue("postgres").database()
            yield Client(lambda: PostgresCatalog(database, PASSWORD))
        case "pgbouncer":
            pooled = request.getfixturevalue("pgbouncer").database()
            yield Client(lambda: PostgresCatalog(pooled, PASSWORD))
        case "rest":
            root = str(tmp_path)
            with RestAdapter("dir", {"root": root, "dir_listing_enabled": "false"}, port=0) as server:
                yield Client(lambda: open_rest(f"http://127.0.0.1:{server.port}", root=root), root, True)
        case kind:
            yield over(open_store(*at_real_server(request, kind, "catalog", tmp_path.name)), tasks)


def test_an_empty_catalog_has_nothing(client: Client) -> None:
    catalog = client()
    assert (catalog.tables(), catalog.cuts()) == ({}, {})
    assert catalog.table("shop.orders") is None
    assert catalog.cut("live") is None


def test_each_client_sees_what_was_swapped(client: Client) -> None:
    one, other = client(), client()
    assert other.tables() == {}
    first, second = client.entry("shop.orders"), client.entry("crm.orders")
    assert one.swap_table("shop.orders", None, first)
    assert client.table("shop.orders", other) == client.told(first)
    assert other.swap_table("crm.orders", None, second)
    assert client.tables(one) == [("crm.orders", client.told(second)), ("shop.orders", client.told(first))]
    moved = client.entry("shop.orders")
    assert one.swap_table("shop.orders", first, moved)
    assert other.swap_table("crm.orders", second, None)
    assert (client.tables(one), other.table("crm.orders")) == ([("shop.orders", client.told(moved))], None)


def test_a_swap_instead_of_another_version_changes_nothing(client: Client) -> None:
    catalog = client()
    first, second = client.entry(), client.entry()
    assert catalog.swap_table("shop.orders", None, first)
    for instead_of, new in ((None, second), (second, client.entry()), (second, None)):
        assert not catalog.swap_table("shop.orders", instead_of, new)
    assert not catalog.swap_table("crm.orders", first, client.entry("crm.orders"))
    assert client.tables() == [("shop.orders", client.told(first))]


def test_a_swap_that_was_done_may_be_repeated(client: Client) -> None:
    catalog, first = client(), client.entry()
    assert catalog.swap_table("shop.orders", None, first)
    assert client().swap_table("shop.orders", None, first)
    assert catalog.swap_table("shop.orders", first, None)
    assert client().swap_table("shop.orders", first, None)
    for moving in (False, True):
        made = cut(f"cut-{moving}", moving=moving)
        assert catalog.swap_cut(made.name, None, made)
        assert client().swap_cut(made.name, None, made)
        assert catalog.swap_cut(made.name, made, None)
        assert client().swap_cut(made.name, made, None)
    assert (catalog.tables(), catalog.cuts()) == ({}, {})


@whole
def test_of_racing_swaps_one_succeeds(client: Client) -> None:
    first = client.entry()
    assert client().swap_table("shop.orders", None, first)
    wanted = [client.entry() for _ in range(8)]
    with ThreadPoolExecutor(8) as threads:
        done = list(threads.map(lambda new: client().swap_table("shop.orders", first, new), wanted))
    assert sum(done) == 1
    assert client().table("shop.orders") == wanted[done.index(True)]


def test_of_racing_registrations_one_succeeds(client: Client) -> None:
    wanted = [client.entry() for _ in range(6)]
    with ThreadPoolExecutor(6) as threads:
        done = list(threads.map(lambda new: client().swap_table("shop.orders", None, new), wanted))
    assert sum(done) == 1
    assert client.tables() == [("shop.orders", client.told(wanted[done.index(True)]))]


def test_racing_swaps_of_different_tables_all_succeed(client: Client) -> None:
    wanted = {f"shop.t{number}": client.entry(f"shop.t{number}") for number in range(8)}
    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(lambda name: client().swap_table(name, None, wanted[name]), wanted))
    assert client.tables() == [(name, client.told(made)) for name, made in wanted.items()]


def test_cuts_are_kept_until_they_are_dropped(client: Client) -> None:
    catalog = client()
    june, other = cut("june"), cut("june")
    assert catalog.swap_cut("june", None, june)
    assert not client().swap_cut("june", None, other)
    assert not client().swap_cut("june", other, None)
    assert client().cut("june") == june
    assert client().swap_cut("june", june, None)
    assert catalog.cut("june") is None
    assert catalog.swap_cut("june", None, other)
    assert dict(client().cuts()) == {"june": other}


def test_a_moving_cut_goes_on_from_version_to_version(client: Client) -> None:
    catalog = client()
    versions = [cut("live", number, moving=True) for number in range(1, 5)]
    before: Cut | None = None
    for version in versions:
        assert catalog.swap_cut("live", before, version)
        assert client().cut("live") == version
        before = version
    assert not client().swap_cut("live", versions[1], cut("live", 9, moving=True))
    assert not client().swap_cut("live", None, cut("live", 9))  # a kept one under its name
    kept = cut("june")
    assert catalog.swap_cut("june", None, kept)
    assert not catalog.swap_cut("june", None, cut("june", moving=True))
    assert dict(client().cuts()) == {"june": kept, "live": versions[-1]}
    assert client().swap_cut("live", versions[-1], None)
    assert client().cut("live") is None
    again = cut("live", moving=True)
    assert client().swap_cut("live", None, again)
    assert catalog.cut("live") == again


def test_changes_decide_again_after_a_lost_race(client: Client) -> None:
    catalog = client()
    meanwhile, mine, seen = client.entry(), client.entry(), list[object]()

    def decide(found: TableEntry | None) -> TableEntry:
        seen.append(found and client.told(found))
        if found is None:
            assert client().swap_table("shop.orders", None, meanwhile)
        return mine

    assert change_table(catalog, "shop.orders", decide) == mine
    assert seen == [None, client.told(meanwhile)]
    assert client.table("shop.orders") == client.told(mine)
    changed = change_table(catalog, "shop.orders", lambda found: found)
    assert changed is not None
    assert client.told(changed) == client.told(mine)


def test_tables_are_found_by_name_and_by_pattern(client: Client) -> None:
    catalog = client()
    for name in ("shop.orders", "shop.items", "crm.orders"):
        assert catalog.swap_table(name, None, client.entry(name))
    with pytest.raises(TableUnknown, match=r"has no table shop\.bills"):
        found_table(catalog, "shop.bills")
    assert list(tables_matching(catalog, ("shop.*",))) == ["shop.items", "shop.orders"]
    assert list(tables_matching(catalog, ("*.orders", "shop.items"))) == ["crm.orders", "shop.items", "shop.orders"]
    for wrong, said in (("bills.*", "is named bills"), ("", "not a pattern"), ("a b", "not a")):
        with pytest.raises(InvalidInput, match=said):
            tables_matching(catalog, (wrong,))


@whole
def test_a_dropped_table_keeps_its_entry_and_no_pattern_names_it(client: Client) -> None:
    catalog, gone = client(), client.entry("shop.gone", state="dropped")
    assert catalog.swap_table("shop.gone", None, gone)
    assert found_table(client(), "shop.gone") == gone
    for pattern in ("shop.gone", "*"):
        with pytest.raises(InvalidInput, match=r"no table of the catalog .* is named"):
            tables_matching(catalog, (pattern,))


def test_a_dropped_table_has_no_name_that_is_in_use(client: Client) -> None:
    """Some catalogs keep its entry, and others remove it."""
    catalog, made = client(), client.entry()
    assert catalog.swap_table("shop.orders", None, made)
    gone = made.model_copy(update={"state": "dropped", "write_id": "gone"})
    assert change_table(catalog, "shop.orders", lambda found: gone) == gone
    assert [name for name, one in client().tables().items() if one.state == "active"] == []
