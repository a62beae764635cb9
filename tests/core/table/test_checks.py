"""Do settings agree with the contract: terms that the one leaves out, or says of nothing, and the other does not have."""

from __future__ import annotations

from typing import Any

import pytest

from lancewal_core.errors import ContractMismatch
from lancewal_core.settings.load import Settings
from lancewal_core.table.checks import check_settings
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
