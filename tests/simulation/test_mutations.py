"""The simulation finds what it must: each safeguard taken away breaks an invariant in the interleaving it is there for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.mutations import MUTATIONS, delete_at_once, list_late
from tests.simulation.scenarios import SCENARIOS
from tests.simulation.trim_scenarios import generation_opens_while_garbage_is_collected

_ALL = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)


@_ALL
def test_with_its_safeguard_a_scenario_ends_well(scenario: Callable[[], None]) -> None:
    scenario()


@_ALL
def test_without_its_safeguard_a_scenario_is_found(
    scenario: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation, said = SCENARIOS[scenario]
    MUTATIONS[mutation](monkeypatch)
    with pytest.raises(Exception, match=said):
        scenario()


def test_every_mutation_has_a_scenario() -> None:
    assert {mutation for mutation, _ in SCENARIOS.values()} == set(MUTATIONS)


@pytest.mark.parametrize("half", [list_late, delete_at_once])
def test_half_a_mutation_of_trimming_is_harmless(
    half: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    half(monkeypatch)
    generation_opens_while_garbage_is_collected()
