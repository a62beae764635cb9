"""Every kind of index, on a table of many fragments, through every act of ours and every way of upkeep: an index finds what a
scan finds, by values that rows have and by values that they had.

A run is one table with an index of each kind, with stable row ids or not, and one way of upkeep behind each act; the acts come
in another order each time.  So every (kind, row ids, act, upkeep) is compared, behind the act and behind the upkeep.

A user's ways of upkeep take turns: each with stable row ids or with addresses, behind every third act.  ``--every-case``
runs them with both, behind all acts, as ``dev.py soak every-case`` does.  The flusher's own upkeep always runs with both,
behind all.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from lancewal_flusher.tasks import in_place
from lancewal_flusher.tasks.cost import Cost, Strategy
from tests.support.indexed_tables import ACTS, KINDS, UPKEEP, AllIndexes

COMBINATIONS = len(KINDS) * 2 * len(ACTS) * len(UPKEEP)


def in_place_where_possible(costs: Sequence[Cost]) -> Cost:
    return next((cost for cost in costs if cost.strategy is Strategy.COLUMNS), costs[0])


@pytest.fixture(autouse=True)
def forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_place, "least", in_place_where_possible)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[bool, AllIndexes]]:
    """By whether row ids are stable."""
    made = {s: AllIndexes.filled(tmp_path_factory.mktemp("table"), stable_row_ids=s) for s in (False, True)}
    yield made
    for table in made.values():
        table.close()


def step(table: AllIndexes, act: str, upkeep: str | None) -> None:
    table.age += 1
    ACTS[act](table)
    table.check()
    assert table.wrong() == {}, f"behind {act}"
    if upkeep is not None:
        UPKEEP[upkeep](table)
        assert table.wrong() == {}, f"behind {act} and {upkeep}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "upkeep" in metafunc.fixturenames:
        every = metafunc.config.getoption("--every-case")
        turns = [(stable, upkeep, at) for at, upkeep in enumerate(UPKEEP) for stable in (False, True)]
        chosen = [(stable, upkeep) for stable, upkeep, at in turns if every or at == 0 or stable == bool(at % 2)]
        metafunc.parametrize(("stable_row_ids", "upkeep"), chosen)


def test_every_act_and_upkeep(
    filled: Mapping[bool, AllIndexes], tmp_path: Path, stable_row_ids: bool, upkeep: str, pytestconfig: pytest.Config
) -> None:
    table = filled[stable_row_ids].copied(tmp_path)
    first = 2 * list(UPKEEP).index(upkeep) + stable_row_ids
    names = [*ACTS]
    order = [names[(first + 3 * number) % len(names)] for number in range(len(names))]
    every = pytestconfig.getoption("--every-case") or upkeep == "extend_indexes"
    for act in order if every else order[::3]:
        step(table, act, upkeep)
    table.close()


def test_the_page_says_how_many() -> None:
    page = Path(__file__).parents[3] / "docs" / "reference" / "indexes.md"
    assert f"{COMBINATIONS:,} combinations" in page.read_text()


@settings(max_examples=1, deadline=None, phases=(Phase.explicit, Phase.generate))
@given(seed=st.integers(0, 10**9))
@example(1)
def test_random_sequences(
    filled: Mapping[bool, AllIndexes], tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    """Acts without upkeep behind each, and upkeep in one way after another."""
    rng = random.Random(seed)
    table = filled[rng.random() < 0.3].copied(tmp_path_factory.mktemp("random"))
    for _ in range(6):
        step(table, rng.choice([*ACTS]), rng.choice([None, *UPKEEP]))
    table.close()
