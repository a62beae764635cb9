"""Regions of tests by the numbers of their partitions, and what is known of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from lancewal_core.names.ids import Region, TopicId

V = TypeVar("V")


def region(partition: int, topic: str = "orders", topic_id: str = "topic-id") -> Region:
    return Region(topic, TopicId(topic_id), partition)


def by_region(numbered: Mapping[int, V], topic: str = "orders", topic_id: str = "topic-id") -> dict[Region, V]:
    """The same, known of the topic's regions."""
    return {region(number, topic, topic_id): value for number, value in numbered.items()}


def by_number(known: Mapping[Region, V]) -> dict[int, V]:
    """The same by partition; of one topic."""
    return {region.partition: value for region, value in known.items()}


def numbers(regions: Iterable[Region]) -> list[int]:
    """Their partitions, in order."""
    return sorted(region.partition for region in regions)
