"""Policies for a record that cannot be a row of its partition: one vocabulary for all settings ``on_...``."""

from __future__ import annotations

from typing import Literal, get_args

Policy = Literal["stop", "dead-letter", "ignore"]
"""Handling of a record that is no row.  ``stop`` stops its partition right before the record.  ``dead-letter`` has the
record acknowledged as a dead letter and goes on.  ``ignore`` skips and counts it."""
POLICIES: tuple[Policy, ...] = get_args(Policy)
