"""A member of the group hears soon that another one joins or leaves."""

from __future__ import annotations

from lancewal_kafka.clients import consumer_properties

HEARTBEAT = "heartbeat.interval.ms"


def test_heartbeats_are_frequent_unless_a_person_says_otherwise_or_the_broker_decides() -> None:
    assert consumer_properties({}, "g", 1 << 20)[HEARTBEAT] == 500
    assert consumer_properties({HEARTBEAT: "3000"}, "g", 1 << 20)[HEARTBEAT] == "3000"
    assert HEARTBEAT not in consumer_properties({"group.protocol": "consumer"}, "g", 1 << 20)
