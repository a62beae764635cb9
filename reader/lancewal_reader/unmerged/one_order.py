"""Find one order for the items of several sequences, each of which has its own order."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from graphlib import TopologicalSorter
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def one_order(sequences: Iterable[Iterable[T]]) -> list[T]:
    """Merge sequences into one order: each item comes once, after all items that precede it in any sequence.  Raises
    ``graphlib.CycleError`` if there is no such order.

    An item that directly follows itself counts once.
    """
    order: TopologicalSorter[T] = TopologicalSorter()
    known: set[tuple[T, T]] = set()
    for items in sequences:
        before: T | None = None
        for item in items:
            if before is None:
                order.add(item)
            elif item != before and (before, item) not in known:
                known.add((before, item))
                order.add(item, before)
            before = item
    return [*order.static_order()]
