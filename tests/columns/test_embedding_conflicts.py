"""Beside an embedding job of pylance and merges, no row and no vector is lost, whatever each refuses the other."""

from __future__ import annotations

from tests.columns.embedding_conflicts import measure


def test_no_row_and_no_vector_is_lost() -> None:
    nulls, at_once, slow, small, large = measure(2_000, 0.02, 0.01)
    for figures, without in (nulls, at_once, slow, small, large):
        assert figures.calls >= 1
        assert figures.refused <= figures.calls
        assert figures.given_up or without < 2_000 or figures is nulls[0]
    assert nulls[1] == 2_000
