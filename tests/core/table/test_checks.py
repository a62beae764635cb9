"""Do settings agree with the contract: terms that the one leaves out, or says of nothing, and the other does not have."""

from __future__ import annotations

from typing import Any

import pytest

from lancewal_core.errors import ContractMismatch
from lancewal_core.settings.load import Settings
from lancewal_core.table.checks import check_settings, check_topics, topics_are_bound
from lancewal_core.table.contract import Column, Contract

TERMS: dict[str, Any] = {
    "table_uuid": "uuid-1",
    "topic": "orders",
    "topic_id": "id",
    "partitions": 1,
    "primary_key": ("k",),
    "region_key": ("k",),
    "start": (0,),
    "columns": (Column(name="k", type="int64", field_ids=(0,)), Column(name="at", type="date32", field_ids=(1,))),
    "patches": False,
}
NEVER = Contract.model_validate(TERMS)
EXPIRES = Contract.model_validate({**TERMS, "ttl_column": "at", "ttl_s": 3600})


def settings(**table: Any) -> Settings:
    return Settings.model_validate({"table": table})


def test_settings_may_say_that_rows_never_expire() -> None:
    never = settings(ttl_column="", ttl_s=0)
    check_settings(never, NEVER)
    check_settings(settings(), EXPIRES)
    check_settings(settings(ttl_column="at", ttl_s="1h"), EXPIRES)
    for wrong, contract in ((never, EXPIRES), (settings(ttl_column="at", ttl_s=60), NEVER)):
        with pytest.raises(ContractMismatch, match=r"table\.ttl_column.*table\.ttl_s|table\.ttl_s"):
            check_settings(wrong, contract)


def test_settings_in_force_are_those_of_the_contract() -> None:
    """As `lancewal config show` prints them, defaults included."""
    shown = settings(topic="orders", primary_key=["k"], region_key=["k"], patches=False).model_dump(mode="json")
    check_settings(Settings.model_validate(shown), NEVER)


def allowing(*topics: str, **table: Any) -> Settings:
    return Settings.model_validate({"table": table, "kafka": {"topics": list(topics)}})


LETTERS = Contract.model_validate({**TERMS, "dead_letter_topic": "payments"})


@pytest.mark.parametrize(
    ("topics", "contract", "refused"),
    [
        (("orders", "orders.dead-letters"), NEVER, ()),
        (("orders*",), NEVER, ()),
        (("*",), LETTERS, ()),
        (("orders", "pay*s"), LETTERS, ()),
        (("orders",), NEVER, ("orders.dead-letters",)),
        (("order", "rders.*", "Orders*"), NEVER, ("orders", "orders.dead-letters")),
        (("orders*",), LETTERS, ("payments",)),
        (("payments*",), LETTERS, ("orders",)),
        # A point stands for itself.
        (("orders", "orders.dead.letters"), NEVER, ("orders.dead-letters",)),
    ],
)  # fmt: skip
def test_a_contract_names_no_topic_that_is_not_allowed(
    topics: tuple[str, ...], contract: Contract, refused: tuple[str, ...]
) -> None:
    for check in (check_settings, check_topics):
        if not refused:
            check(allowing(*topics), contract)
            continue
        with pytest.raises(ContractMismatch) as error:
            check(allowing(*topics), contract)
        assert f"does not allow {' and '.join(map(repr, refused))}:" in str(error.value)
        assert "LANCEWAL_KAFKA__TOPICS" in str(error.value)


def test_without_allowed_topics_those_of_the_table_compare_as_far_as_they_are_set() -> None:
    check_topics(settings(), LETTERS)
    check_topics(settings(topic="orders"), LETTERS)
    check_topics(settings(topic="orders", dead_letter_topic="payments"), LETTERS)
    for wrong in (settings(topic="trips"), settings(dead_letter_topic="orders.dead-letters")):
        with pytest.raises(ContractMismatch, match=r"table\.(topic|dead_letter_topic) .* the table's contract says"):
            check_topics(wrong, LETTERS)


@pytest.mark.parametrize(
    ("given", "bound"),
    [
        (settings(), False),
        (settings(topic="orders"), False),
        (settings(dead_letter_topic="letters"), False),
        (settings(topic="orders", dead_letter_topic="letters"), True),
        (allowing("orders*"), True),
    ],
)
def test_topics_are_bound_by_settings_alone(given: Settings, bound: bool) -> None:
    assert topics_are_bound(given) is bound
