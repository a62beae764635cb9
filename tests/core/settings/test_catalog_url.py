"""Addresses of servers of catalogs: no password, and nothing that lancewal sets itself."""

from __future__ import annotations

import pytest

from lancewal_core.errors import InvalidSettings
from lancewal_core.settings.catalog_url import catalog_url, kind_of_url, shown_url
from lancewal_core.settings.load import load_settings

SECRET = "hunter2-do-not-show"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://h/d", "postgresql://h/d"),
        ("postgres://lancewal@db.example:5432/lake", "postgres://db.example:5432/lake"),
        ("postgresql://u@a:5432,b:5433/d?sslrootcert=/etc/ca.pem", "postgresql://a:5432,b:5433/d"),
        ("postgresql://u@[::1]:5432/d", "postgresql://[::1]:5432/d"),
        ("postgresql:///d?host=/run/postgresql", "postgresql:///d"),
    ],
)
def test_addresses_are_shown_without_user_and_parameters(url: str, shown: str) -> None:
    assert catalog_url(url, "postgres") == url
    assert shown_url(url) == shown
    assert kind_of_url(url) == "postgres"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (f"postgresql://u:{SECRET}@h/d", "catalog.password"),
        (f"postgresql://u:{SECRET}/x@h/d", "not valid"),
        (f"postgresql://u:1/{SECRET}@h/d", "not valid"),
        (f"postgresql://u@h/d?password={SECRET}", "catalog.password"),
        (f"postgresql://u%3A{SECRET}@h/d", "catalog.password"),
        (f"postgresql://{SECRET}@@h/d", "catalog.password"),
        ("postgresql://h/d?options=-c%20search_path%3Dx", "'options'"),
        ("postgresql://h/d?target_session_attrs=any", "'target_session_attrs'"),
        ("postgresql://h/d?service", "not valid"),
        ("postgresql://h/d#x", "not valid"),
        ("postgresql://h:port/d", "not valid"),
        ("postgresql://[::1/d", "not valid"),
        ("postgresql://h/d/e", "not valid"),
        ("mysql://h/d", "not valid"),
        ("/local/folder", "not valid"),
    ],
)
def test_other_addresses_are_refused(url: str, said: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        catalog_url(url, "postgres")
    assert said in str(caught.value)
    assert SECRET not in str(caught.value)
    with pytest.raises(InvalidSettings) as caught:
        load_settings(None, {"LANCEWAL_CATALOG__KIND": "postgres", "LANCEWAL_CATALOG__URL": url})
    assert said in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("text", ["s3://lake/x", "/a/b", "file:///a", "shop.orders", ""])
def test_a_folder_is_no_server(text: str) -> None:
    assert kind_of_url(text) is None


def test_kind_and_address_belong_together() -> None:
    for given, said in (
        ({"KIND": "postgres"}, "catalog.url is not set"),
        ({"URL": "postgresql://h/d"}, "catalog.kind is directory"),
        ({"KIND": "postgres", "URL": "s3://lake/x"}, "not valid"),
    ):
        with pytest.raises(InvalidSettings, match=said):
            load_settings(None, {f"LANCEWAL_CATALOG__{name}": value for name, value in given.items()})
