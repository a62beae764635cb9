"""The catalog in a folder: its limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from lancewal_core.catalog import directory
from lancewal_core.catalog.cut import Cut, CutTable
from lancewal_core.catalog.opened import open_directory
from lancewal_core.errors import InvalidInput
from lancewal_core.names import paths
from lancewal_core.process.clock import SystemClock
from tests.support.catalog_entries import entry


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
        for number in range(4, 160):
            assert awake.swap_cut("live", awake.cut("live"), moving(number))
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
    for number in range(4, 160):
        assert awake.swap_cut("live", awake.cut("live"), moving(number))
    assert not (tmp_path / paths.moving_cut_version("live", 4)).exists()
    assert asleep.cut("live") == moving(159)
    assert not asleep.swap_cut("live", moving(3), moving(1000))


def test_a_full_catalog_takes_changes_but_no_other_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "TABLES_MAX", 2)
    catalog = open_directory(str(tmp_path))
    first, second, third = entry("a"), entry("b"), entry("c")
    for one in (first, second):
        assert catalog.swap_table(one.name, None, one)
    with pytest.raises(InvalidInput, match=r"has 2 tables, which is the most: .*lancewal catalog forget"):
        catalog.swap_table("c", None, third)
    assert list(open_directory(str(tmp_path)).tables()) == ["a", "b"]
    changed = entry("a")
    assert catalog.swap_table("a", first, changed)
    assert catalog.swap_table("b", second, None)
    assert catalog.swap_table("c", None, third)
    assert catalog.tables() == {"a": changed, "c": third}
