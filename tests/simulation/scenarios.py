"""The interleavings against which the protocol's safeguards protect, each written down step by step.

With the safeguard a scenario ends well; without the safeguard it raises an error.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation import (
    added_scenarios,
    bundle_accidents,
    change_scenarios,
    column_scenarios,
    conflict_scenarios,
    cut_scenarios,
    drain_accidents,
    drop_scenarios,
    event_scenarios,
    expiry_scenarios,
    first_row_scenarios,
    flush_scenarios,
    group_scenarios,
    ingest_scenarios,
    key_form_scenarios,
    key_text_scenarios,
    making_scenarios,
    merge_scenarios,
    moving_scenarios,
    point_scenarios,
    schema_scenarios,
    subscription_scenarios,
    trim_scenarios,
    widening_scenarios,
)

SCENARIOS: dict[Callable[[], None], tuple[str, str]] = {
    **ingest_scenarios.SCENARIOS,
    **first_row_scenarios.SCENARIOS,
    **flush_scenarios.SCENARIOS,
    **merge_scenarios.SCENARIOS,
    **trim_scenarios.SCENARIOS,
    **making_scenarios.SCENARIOS,
    **group_scenarios.SCENARIOS,
    **drop_scenarios.SCENARIOS,
    **bundle_accidents.SCENARIOS,
    **drain_accidents.SCENARIOS,
    **expiry_scenarios.SCENARIOS,
    **conflict_scenarios.SCENARIOS,
    **key_text_scenarios.SCENARIOS,
    **key_form_scenarios.SCENARIOS,
    **event_scenarios.SCENARIOS,
    **point_scenarios.SCENARIOS,
    **change_scenarios.SCENARIOS,
    **subscription_scenarios.SCENARIOS,
    **cut_scenarios.SCENARIOS,
    **moving_scenarios.SCENARIOS,
    **column_scenarios.SCENARIOS,
    **widening_scenarios.SCENARIOS,
    **added_scenarios.SCENARIOS,
    **schema_scenarios.SCENARIOS,
}
"""What each finds: the mutation, and what then is said."""
