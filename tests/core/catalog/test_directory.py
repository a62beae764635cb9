"""The catalog in a folder: its limits."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from lancewal_core.catalog import directory
from lancewal_core.catalog.cut import Cut, CutTable
from lancewal_core.catalog.directory import DirectoryCatalog
from lancewal_core.catalog.opened import open_directory
from lancewal_core.errors import InvalidInput, LancewalError, StoreNotWritable, StoreUnavailable
from lancewal_core.names import paths
from lancewal_core.process.clock import SystemClock
from tests.support.catalog_entries import cut, entry


def moving(number: int) -> Cut:
    of = CutTable(uri="s3://lake/a", table_uuid="u", receipt="lw1.x")
    terms = {"asked_ms": 1, "took_ms": 1, "made_ms": 1, "write_id": f"w{number}"}
    return Cut.model_validate({"name": "live", "moving": True, "number": number, "tables": {"a": of}, **terms})


class Shifted(SystemClock):
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


def age(root: Path) -> None:
    """Make all objects older by two hours."""
    for path in root.rglob("*"):
        if path.is_file():
            os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 2 * 3600))


def publish(catalog: DirectoryCatalog, root: Path) -> None:
    """Publish the numbers 4 to 159 of the moving cut.  Most of them are some hours older than the last."""
    for number in range(4, 160):
        assert catalog.swap_cut("live", catalog.cut("live"), moving(number))
        if number == 140:
            age(root)


def test_a_process_that_slept_for_long_puts_nothing_into_the_place_of_deleted_versions(tmp_path: Path) -> None:
    """It has read the cut, and sleeps before its swap or before its next read, until the next versions are deleted."""
    clocks = {name: Shifted() for name in ("awake", "asleep")}
    awake, asleep = (open_directory(str(tmp_path), clock=clock) for clock in clocks.values())
    for number in range(1, 4):
        assert awake.swap_cut("live", awake.cut("live"), moving(number))
    known = asleep.cut("live")
    assert known == moving(3)
    store, put = asleep._store, asleep._store.put_if_absent
    for clock in clocks.values():
        clock.ahead_ms += 2 * 3600 * 1000

    def sleep(key: str, data: bytes) -> object:
        clocks["asleep"].ahead_ms += 2 * 3600 * 1000
        publish(awake, tmp_path)
        store.put_if_absent = put  # type: ignore[method-assign] # it wakes up
        return put(key, data)

    store.put_if_absent = sleep  # type: ignore[method-assign,assignment] # the swap is asleep here
    assert not asleep.swap_cut("live", known, moving(1000))
    assert not (tmp_path / paths.moving_cut_version("live", 20)).exists()
    assert asleep.cut("live") == awake.cut("live") == open_directory(str(tmp_path)).cut("live") == moving(159)


def test_a_version_that_was_read_long_ago_is_not_looked_on_from(tmp_path: Path) -> None:
    clock = Shifted()
    awake, asleep = open_directory(str(tmp_path), clock=clock), open_directory(str(tmp_path), clock=clock)
    for number in range(1, 4):
        assert awake.swap_cut("live", awake.cut("live"), moving(number))
    assert asleep.cut("live") == moving(3)
    clock.ahead_ms += 2 * 3600 * 1000
    publish(awake, tmp_path)
    assert not (tmp_path / paths.moving_cut_version("live", 4)).exists()
    assert asleep.cut("live") == moving(159)
    assert not asleep.swap_cut("live", moving(3), moving(1000))


@pytest.mark.parametrize("first", ["kept", "moving"])
@pytest.mark.parametrize("then", ["lives", "dies"])
def test_a_name_is_of_a_kept_cut_or_of_a_moving_one(tmp_path: Path, first: str, then: str) -> None:
    """One maker has looked, and the other one comes to its end before the first one puts its cut, or dies right then."""
    one, other = open_directory(str(tmp_path)), open_directory(str(tmp_path))
    cuts = {"kept": cut("live"), "moving": moving(1)}
    late, early = cuts.pop(first), next(iter(cuts.values()))
    put = one._store.put_if_absent

    def meanwhile(key: str, data: bytes) -> object:
        one._store.put_if_absent = put  # type: ignore[method-assign] # the next ones are put at once
        if then == "dies":
            other._store.put_if_absent = dies_after(other._store.put_if_absent)  # type: ignore[method-assign,assignment]
            with pytest.raises(Died):
                other.swap_cut("live", None, early)
        else:
            assert other.swap_cut("live", None, early)
        return put(key, data)

    one._store.put_if_absent = meanwhile  # type: ignore[method-assign,assignment]
    assert not one.swap_cut("live", None, late)
    for catalog in (one, other, open_directory(str(tmp_path))):
        assert catalog.cut("live") == early
        assert dict(catalog.cuts()) == {"live": early}
        assert not catalog.swap_cut("live", None, late)
    assert open_directory(str(tmp_path)).swap_cut("live", early, None)
    again = open_directory(str(tmp_path))
    assert again.swap_cut("live", None, late)
    assert again.cut("live") == late


T = TypeVar("T")


class Died(Exception):
    """A maker dies."""


def dies_after(put: Callable[[str, bytes], T]) -> Callable[[str, bytes], T]:
    def act(key: str, data: bytes) -> T:
        put(key, data)
        raise Died

    return act


def test_threads_share_the_list_that_was_decoded(tmp_path: Path) -> None:
    """Another thread decodes a later version of the list whenever this one has looked at the decoded one."""
    catalog = open_directory(str(tmp_path))
    first, second = entry("a"), entry("b")
    assert catalog.swap_table("a", None, first)

    class Shared(DirectoryCatalog):
        @property
        def _decoded(self) -> tuple[int, directory._Tables]:
            found = self.__dict__["now"]
            self.__dict__["now"] = 2, directory._Tables(write_id="w", tables={"b": second})
            assert isinstance(found, tuple)
            return found

        @_decoded.setter
        def _decoded(self, of: tuple[int, directory._Tables]) -> None:
            self.__dict__["now"] = of

    shared = Shared(catalog._store, catalog.where, catalog._tasks, SystemClock(), lambda: "w")
    shared.__dict__["now"] = catalog._decoded
    assert shared.tables() == {"a": first}


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("ahead_h", [-2, 0, 2])
def test_the_newest_hundred_versions_stay_and_those_of_an_hour(tmp_path: Path, old: bool, ahead_h: int) -> None:
    """The clock of the process may be wrong: another one, whose clock is right, looks on from a version that it knows."""
    clock = Shifted()
    clock.ahead_ms = ahead_h * 3600 * 1000
    catalog = open_directory(str(tmp_path), clock=clock)
    before = None
    for number in range(260):
        new = entry("a")
        assert catalog.swap_table("a", before, new)
        before = new
        if old and number == 240:
            age(tmp_path)
    found = {version for version in range(1, 261) if (tmp_path / paths.catalog_tables_version(version)).exists()}
    assert found == ({1, *range(151, 261)} if old else set(range(1, 261)))
    assert open_directory(str(tmp_path)).table("a") == before


@pytest.mark.parametrize("error", [StoreNotWritable("no right to delete"), StoreUnavailable("no answer")])
def test_a_change_counts_though_old_versions_cannot_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: LancewalError
) -> None:
    catalog, refused = open_directory(str(tmp_path)), []

    def refuse(keys: object) -> None:
        refused.append(keys)
        raise error

    monkeypatch.setattr(catalog._store, "delete", refuse)
    for number in range(1, 61):
        assert catalog.swap_cut("live", catalog.cut("live"), moving(number))
    assert refused
    assert open_directory(str(tmp_path)).cut("live") == moving(60)


def test_a_full_catalog_takes_changes_but_no_other_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "TABLES_MAX", 2)
    catalog = open_directory(str(tmp_path))
    first, second, third = entry("a"), entry("b"), entry("c")
    for one in (first, second):
        assert catalog.swap_table(one.name, None, one)
    with pytest.raises(InvalidInput, match=r"has 2 tables, the most that it can have: .*lancewal catalog forget"):
        catalog.swap_table("c", None, third)
    assert list(open_directory(str(tmp_path)).tables()) == ["a", "b"]
    changed = entry("a")
    assert catalog.swap_table("a", first, changed)
    assert catalog.swap_table("b", second, None)
    assert catalog.swap_table("c", None, third)
    assert catalog.tables() == {"a": changed, "c": third}
