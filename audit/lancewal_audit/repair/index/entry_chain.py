"""Finding a way through a region's entries: positions without a gap, wherever the entries lie.  Pure.

An entry's rows follow from Kafka and the contract alone, so of two entries over the same positions either will do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lancewal_audit.repair.log_survey import Piece
from lancewal_core.names.ids import Position

Joined = Callable[[Piece, Piece], bool]
"""Whether the later piece lies behind the earlier in the same log, with nothing missing in between."""


def farthest_chain(pieces: Sequence[Piece], start: Position, joined: Joined) -> list[Piece]:
    """Pieces from ``start`` that follow each other, to the farthest position that can be reached; few changes of log."""
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
    """Pieces of one log from ``first`` to ``end`` exactly, nothing missing in between; None if no log has them."""
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
    """The chain cut where a walk of one log does not lead on: each part can be a generation."""
    parts: list[list[Piece]] = []
    for piece in chain:
        if parts and parts[-1][-1].log == piece.log and joined(parts[-1][-1], piece):
            parts[-1].append(piece)
        else:
            parts.append([piece])
    return parts
