"""While a read makes many objects that last, Python's collector does not look at them again and again."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from lancewal_reader.plan import strong
from lancewal_reader.plan.python_collector import many_objects_made
from lancewal_reader.table import open_table
from lancewal_reader.unmerged import load
from tests.support.pipeline import Pipeline, by_key

USUAL = (700, 10, 10)


@pytest.fixture(autouse=True)
def _threshold_as_before() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*USUAL)
    yield
    gc.set_threshold(*before)


@contextmanager
def looks() -> Iterator[list[str]]:
    """Those of the collector, inside."""
    begun: list[str] = []
    gc.collect()
    gc.callbacks.append(lambda phase, _: begun.append(phase))
    try:
        yield begun
    finally:
        gc.callbacks.pop()


def test_what_a_read_makes_is_not_looked_at_and_afterwards_all_is_as_before() -> None:
    with many_objects_made(), looks() as begun:
        made = [[n] for n in range(40_000)]
    assert (len(made), begun) == (40_000, [])
    assert gc.get_threshold() == USUAL
    with looks() as begun:
        made = [[n] for n in range(40_000)]
    assert len(begun) > 10


def test_of_several_the_last_puts_back_what_was_before_the_first() -> None:
    first, second = many_objects_made(), many_objects_made()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert gc.get_threshold()[0] > 10_000
    second.__exit__(None, None, None)
    assert gc.get_threshold() == USUAL


def test_a_read_that_fails_puts_it_back_too() -> None:
    with pytest.raises(ValueError, match="broken"), many_objects_made():
        raise ValueError("broken")
    assert gc.get_threshold() == USUAL


def test_a_read_that_is_interrupted_while_it_begins_puts_it_back_too(monkeypatch: pytest.MonkeyPatch) -> None:
    set_threshold = gc.set_threshold

    def interrupted(*threshold: int) -> None:
        set_threshold(*threshold)
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(gc, "set_threshold", interrupted)
    with pytest.raises(KeyboardInterrupt), many_objects_made():
        pass
    assert gc.get_threshold() == USUAL
    with many_objects_made():
        assert gc.get_threshold()[0] > 10_000
    assert gc.get_threshold() == USUAL


@pytest.mark.parametrize("own", [(0, 10, 10), (1_000_000, 5, 5)])
def test_who_has_set_it_otherwise_keeps_that(own: tuple[int, int, int]) -> None:
    gc.set_threshold(*own)
    with many_objects_made():
        assert gc.get_threshold() == own
    gc.set_threshold(*USUAL)
    with many_objects_made():
        gc.set_threshold(*own)
    assert gc.get_threshold() == own


def test_a_strong_read_plans_and_folds_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin: dict[str, int] = {}

    def note(module: ModuleType, name: str) -> None:
        original = getattr(module, name)

        def noted(*wanted: Any) -> Any:
            begin[name] = gc.get_threshold()[0]
            return original(*wanted)

        monkeypatch.setattr(module, name, noted)

    note(strong, "_plan_once")
    note(load, "_folds_at_once")
    pipeline = Pipeline(tmp_path, seed=3)
    pipeline.produce(30)
    pipeline.ingest()
    assert by_key(open_table(pipeline.uri).to_arrow()) == pipeline.oracle
    assert begin == {"_plan_once": 50_000, "_folds_at_once": 50_000}
    assert gc.get_threshold() == USUAL
    pipeline.close()
