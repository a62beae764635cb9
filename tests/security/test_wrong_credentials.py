"""Wrong credentials and places on the servers of S3, Azure and Google Cloud Storage.

Each gives an error that names the option to correct, does not ask to try again, and shows no secret.  The server that stands
for Google checks no credentials, so a key file that Google would refuse is not among the cases.  Without any credentials the
libraries ask the machine that runs the tests: ``tests/core/store/test_refusal.py`` has the texts of that.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, cast

import pytest
import yaml

from lancewal_core.cli.options import read_settings
from lancewal_core.cli.program import run
from lancewal_core.errors import ASKS_FOR_A_PERSON, LancewalError
from lancewal_kafka.topic import TopicInspector
from lancewal_tables.define.create import create_table
from tests.flusher.table_settings import COLUMNS
from tests.support.azure_sas import sas_token
from tests.support.store_addresses import REAL, at_real_server
from tests.tables.define.test_copies import NoBroker

SECRET = base64.b64encode(b"canary" * 8).decode()
"""A key of none of the servers."""
HOLDER = "wrong-credentials"
KINDS = {mark.values[0]: mark for mark in REAL}

Options = Mapping[str, str]


class Case(NamedTuple):
    kind: str
    change: Callable[[dict[str, str]], Options]
    """Makes the wrong options of the right ones."""
    named: str
    """Words of the advice."""
    holder: str = HOLDER


def without(*names: str, **more: str) -> Callable[[dict[str, str]], Options]:
    return lambda right: {name: value for name, value in right.items() if name not in names} | more


def sas(rights: str, lives_s: float = 600, container: str = HOLDER) -> Callable[[dict[str, str]], Options]:
    """The token lives from the moment in which it is used, however long ago the tests were collected."""

    def change(options: dict[str, str]) -> Options:
        token = sas_token(container, rights, time.time() + lives_s)
        return without("azure_storage_account_key", azure_storage_sas_token=token)(options)

    return change


no_token = without("azure_storage_account_key", azure_storage_sas_token="canary")


def of_account(right: dict[str, str]) -> Options:
    """Options of an account that the server does not have."""
    endpoint = right["azure_storage_endpoint"].rpartition("/")[0]
    return {**right, "azure_storage_account_name": "other1", "azure_storage_endpoint": f"{endpoint}/other1"}


def bad_pem(right: dict[str, str]) -> Options:
    account = json.loads(Path(right["google_service_account"]).read_text())
    key = json.dumps({**account, "disable_oauth": False, "private_key": SECRET, "client_email": "a@b"})
    return {"google_service_account_key": key, "allow_http": "true"}


KEY, TOKEN = "storage.options azure_storage_account_key", "azure_storage_sas_token"
RIGHTS = "docs/reference/trust.md lists them"
AZURE = "table.uri or storage.options azure_storage_endpoint"
NO_FILE = "correct storage.options google_service_account"
CASES = {
    "s3, wrong key": Case("s3", without(aws_access_key_id="other"), "correct storage.options aws_access_key_id"),
    "s3, wrong secret": Case("s3", without(aws_secret_access_key=SECRET), "correct storage.options aws_secret_access_key"),
    "s3, no bucket": Case("s3", without(), "create it, or correct table.uri or storage.options aws_endpoint", "nowhere"),
    "az, wrong key": Case("az", without(azure_storage_account_key=SECRET), f"correct {KEY}"),
    "az, no key at all": Case("az", without(azure_storage_account_key="canary!"), f"{KEY} is no key"),
    "az, no right to write": Case("az", sas("rl"), f"grant these credentials the rights ({RIGHTS}), or set others in {KEY}"),
    "az, token of yesterday": Case("az", sas("rcwdl", lives_s=-86400), f"renew the token in {TOKEN}"),
    "az, token of another container": Case("az", sas("rcwdl", container="other"), TOKEN),
    "az, no token": Case("az", no_token, f"{TOKEN} is not a SAS token"),
    "az, no container": Case("az", without(), f"create it, or correct {AZURE}", "nowhere"),
    "az, no container's name": Case("az", without(), "correct table.uri", "x"),
    "az, wrong account": Case("az", of_account, f"correct {AZURE}"),
    "az, no account": Case("az", without("azure_storage_account_name"), "set storage.options azure_storage_account_name"),
    "gs, no file": Case("gs", without(google_service_account="/nowhere/canary.json"), NO_FILE),
    "gs, no fields": Case("gs", without("google_service_account", google_service_account_key="{}"), NO_FILE),
    "gs, bad key in the file": Case("gs", bad_pem, NO_FILE),
    "gs, no bucket": Case("gs", without(), "create it, or correct table.uri or storage.options google_base_url", "nowhere"),
}  # fmt: skip


@pytest.fixture(params=[pytest.param(name, marks=KINDS[case.kind].marks) for name, case in CASES.items()])
def wrong(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Case, str, Path]:  # s3, azure, gcs
    """A case, the address of a table, and a file of settings with it."""
    case = CASES[request.param]
    there, right = at_real_server(request, case.kind, HOLDER, "one")
    uri = there.replace(HOLDER, case.holder)
    config = tmp_path / "lancewal.yaml"
    table = {"topic": "orders", "columns": COLUMNS, "primary_key": ["region", "id"], "region_key": ["region"]}
    tree = {
        "table": {"uri": uri, **table}, "kafka": {"bootstrap_servers": "127.0.0.1:1"},
        "storage": {"options": dict(case.change(right))},
    }  # fmt: skip
    config.write_text(yaml.safe_dump(tree))
    return case, uri, config


def check(case: Case, text: str) -> None:
    assert case.named in text
    assert "try again" not in text.lower()
    for secret in (SECRET, "canary", "sig="):
        assert secret not in text.replace("/nowhere/canary.json", "")


def test_what_a_person_must_correct_is_named(wrong: tuple[Case, str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """By the check of the store, and by the making of a table, where Lance may be the first that is refused."""
    case, uri, config = wrong
    assert run(["store", "check", uri, "--config", str(config)]) == ASKS_FOR_A_PERSON
    check(case, capsys.readouterr().err)
    with pytest.raises(LancewalError) as caught:
        create_table(read_settings(config, find="none"), cast("TopicInspector", NoBroker()))
    assert caught.value.exit_code == ASKS_FOR_A_PERSON
    check(case, str(caught.value))
