"""A claimer that read the index long ago: the region was re-anchored and the log's beginning trimmed meanwhile."""

from __future__ import annotations

from lancewal_core.names.ids import LogId, OwnerId, Position, Region, Sequence, TopicId
from lancewal_core.region.transitions import Claimant, Ended, claim, first_claim, reanchor

REGION = Region("orders", TopicId("topic-id-1"), 0)
OWNER = Claimant(OwnerId("owner"), LogId("00000000000000aa"), Sequence(0))
CLAIMER = Claimant(OwnerId("claimer"), LogId("00000000000000bb"), Sequence(0))


def test_an_end_found_in_what_was_trimmed_is_no_end() -> None:
    index = first_claim(REGION, 1, Position(5), OWNER, "w1")
    record = index.generations[0]
    # The claimer looks at segment 0, finds it absent and puts its fence there.
    ended = Ended(record.generation, record.log, Position(5), Sequence(0), None, 0)
    assert claim(index, ended, 1, CLAIMER, "w2") is not None
    # But the owner had written segments 0 to 7 for other regions, re-anchored, and 0 to 7 were trimmed.
    later = Claimant(OWNER.owner, OWNER.log, Sequence(8))
    moved = reanchor(index, record.generation, later, "w3")
    assert moved is not None
    assert claim(moved, ended, 1, CLAIMER, "w4") is None
    proper = Ended(record.generation, record.log, Position(5), Sequence(8), None, 0)
    assert claim(moved, proper, 1, CLAIMER, "w5") is not None
