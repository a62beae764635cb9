"""What Lance raises when the store does not answer, an OSError here and a ValueError there, is a fault that may pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance.file import LanceFileSession

from lancewal_core.errors import StoreUnavailable
from lancewal_core.table.lance.table import LanceTable

SENDING = "LanceError(IO): Generic S3 error: Error performing GET ... HTTP error: error sending request, rust/a.rs:1:2"


@pytest.fixture
def table(tmp_path: Path) -> LanceTable:
    lance.write_dataset(pa.table({"a": [1]}), str(tmp_path / "table"))
    return LanceTable(str(tmp_path / "table"))


@pytest.mark.parametrize("kind", [OSError, ValueError])
def test_opening(table: LanceTable, kind: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> Any:
        raise kind(SENDING)

    monkeypatch.setattr("lancewal_core.table.lance.table.lance.dataset", fails)
    for opening in (table.newest, lambda: table.at(1), lambda: table.transaction(1)):
        with pytest.raises(StoreUnavailable, match="SSL_CERT_FILE"):
            opening()


@pytest.mark.parametrize("kind", [OSError, ValueError])
def test_a_transaction_that_was_not_read_is_not_passed_over(
    table: LanceTable, kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Passing over it as over a rewrite would take an older merge for the newest."""

    def fails(*_: object) -> Any:
        raise kind(SENDING)

    monkeypatch.setattr(lance.LanceDataset, "read_transaction", fails)
    with pytest.raises(StoreUnavailable, match="transaction of version 1"):
        table.transaction(1)


@pytest.mark.parametrize("kind", [OSError, ValueError])
def test_a_data_file(table: LanceTable, kind: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> Any:
        raise kind(SENDING)

    fragments = table.write_rows(pa.table({"a": [2]}))
    monkeypatch.setattr(LanceFileSession, "open_reader", fails)
    with pytest.raises(StoreUnavailable, match="reading data file"):
        list(table.read_unadopted(fragments, ["a"]))
