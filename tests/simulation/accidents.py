"""Accidents: what operators, users, producers, Kafka and other processes do at the worst moment, each written down.

An accident ends as the protocol says: all is well in the end, or whoever is concerned stops by name and nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation import (
    added_scenarios,
    bundle_accidents,
    column_scenarios,
    cut_scenarios,
    drain_accidents,
    drop_scenarios,
    event_scenarios,
    finish_accidents,
    key_form_scenarios,
    key_text_scenarios,
    merge_accidents,
    moving_scenarios,
    owner_accidents,
    page_accidents,
    rare_accidents,
    subscription_scenarios,
    topic_accidents,
    trim_accidents,
    widening_scenarios,
)

ACCIDENTS: list[Callable[[], None]] = [
    *owner_accidents.ACCIDENTS,
    *page_accidents.ACCIDENTS,
    *bundle_accidents.ACCIDENTS,
    *topic_accidents.ACCIDENTS,
    *key_text_scenarios.ACCIDENTS,
    *key_form_scenarios.ACCIDENTS,
    *event_scenarios.ACCIDENTS,
    *drain_accidents.ACCIDENTS,
    *drop_scenarios.ACCIDENTS,
    *merge_accidents.ACCIDENTS,
    *finish_accidents.ACCIDENTS,
    *trim_accidents.ACCIDENTS,
    *rare_accidents.ACCIDENTS,
    *subscription_scenarios.ACCIDENTS,
    *cut_scenarios.ACCIDENTS,
    *moving_scenarios.ACCIDENTS,
    *column_scenarios.ACCIDENTS,
    *widening_scenarios.ACCIDENTS,
    *added_scenarios.ACCIDENTS,
]
