"""The page of dead letters lists every kind, with its meaning."""

from __future__ import annotations

import re
from pathlib import Path

from lancewal_core.table.contract import MISROUTED, UNREADABLE
from lancewal_ingest.decode.outcomes import KINDS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "dead-letters.md"


def test_the_page_has_every_kind_and_no_other() -> None:
    listed = re.findall(r"^\| `([a-z_]+)` \|", PAGE.read_text(), re.MULTILINE)
    assert listed == [*KINDS, MISROUTED, UNREADABLE]
