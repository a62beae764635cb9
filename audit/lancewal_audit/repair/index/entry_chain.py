"""Find a chain of a region's entries: positions without a gap, whichever logs the entries lie in.  Pure.

An entry's rows follow from Kafka and the contract alone, so two entries over the same positions are equivalent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lancewal_audit.repair.log_survey import Piece
from lancewal_core.names.ids import Position

Joined = Callable[[Piece, Piece], bool]
"""Function of an earlier and a later piece.  Returns whether both are in the same log, with no segment missing between
them."""


def farthest_chain(pieces: Sequence[Piece], start: Position, joined: Joined) -> list[Piece]:
    """Return consecutive pieces from ``start`` to the farthest position that can be reached, with few changes of log."""
    arriving: dict[Position, Piece] = {}
    reached = {start}
    for piece in sorted(pieces, key=lambda p: (p.first, p.log, p.sequence)):
        if piece.first not in reached:
            continue
        known = arriving.get(piece.next)
        before = arriving.get(piece.first)
        if known is None or (before is not None and joined(before, piece)):
            arriving[piece.next] = piece
        reached.add(piece.next)
    chain: list[Piece] = []
    at = max(reached)
    while at != start:
        chain.append(arriving[at])
        at = chain[-1].first
    return chain[::-1]


def chain_between(pieces: Sequence[Piece], first: Position, end: Position, joined: Joined) -> list[Piece] | None:
    """Return pieces of one log from ``first`` to ``end`` exactly, with nothing missing in between; None if no log has
    them."""
    for log in sorted({piece.log for piece in pieces}):
        at, found = first, list[Piece]()
        for piece in (p for p in pieces if p.log == log):
            if piece.first != at or at == end or (found and not joined(found[-1], piece)):
                continue
            found.append(piece)
            at = piece.next
        if at == end:
            return found
    return None


def runs(chain: Sequence[Piece], joined: Joined) -> list[list[Piece]]:
    """Divide the chain into parts that lie in one log without a missing segment.  So each part can be a generation."""
    parts: list[list[Piece]] = []
    for piece in chain:
        if parts and parts[-1][-1].log == piece.log and joined(parts[-1][-1], piece):
            parts[-1].append(piece)
        else:
            parts.append([piece])
    return parts
