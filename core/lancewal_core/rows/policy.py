"""Policies for a record that cannot be a row of its partition: one vocabulary for all settings ``on_...``."""

from __future__ import annotations

from typing import Literal, get_args

Policy = Literal["stop", "dead-letter", "ignore"]
"""``stop`` its partition right before it; have it acknowledged as a dead letter and go on; or pass it over and count it."""
POLICIES: tuple[Policy, ...] = get_args(Policy)
