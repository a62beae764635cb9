"""Keys of a delta that processes of an executor share, by threads that open the files each by itself."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pyarrow as pa
import pytest

from lancewal_core.rows.fold import Folded
from lancewal_core.rows.schema import RowSchema
from lancewal_reader.spark import shared_keys
from lancewal_reader.spark.shared_keys import digest_of, folder_of_executor, shared
from lancewal_reader.unmerged.loaded import Loaded

KEY = pa.schema([pa.field("region", pa.string(), nullable=False), pa.field("id", pa.int64(), nullable=False)])
SCHEMA = RowSchema(KEY, ("region", "id"), ("region",))


def keys(*ids: int) -> pa.Table:
    return pa.table({"region": [f"r{id}" for id in ids], "id": list(ids)}, KEY)


def loaded(met: pa.Table | None = None) -> Loaded:
    partials = keys(7).append_column("_present", pa.array([b"\x01"]))
    return Loaded(Folded(keys(1, 2), keys(3), partials), SCHEMA, met, 5, (0, 2))


def parts(found: Loaded) -> tuple[object, ...]:
    folded = found.folded
    met = None if found.met is None else found.met.to_pylist()
    told = (found.unmerged, found.partitions, met)
    return folded.rows.to_pylist(), folded.gone.to_pylist(), folded.partials.to_pylist(), *told


@pytest.mark.parametrize("met", [None, keys(2)])
def test_one_loads_and_the_others_map(tmp_path: Path, met: pa.Table | None) -> None:
    loads, together = [], Barrier(4)

    def load() -> Loaded:
        loads.append(1)
        return loaded(met)

    def one(_: int) -> Loaded:
        together.wait(60)
        return shared(tmp_path, "d", SCHEMA, load)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(one, range(4)))
    assert len(loads) == 1
    assert {str(parts(one)) for one in found} == {str(parts(loaded(met)))}
    again = shared(tmp_path, "d", SCHEMA, load)
    assert (len(loads), again.mask.contains([pa.array(["r3", "r4"]), pa.array([3, 4])]).tolist()) == (1, [True, False])
    assert again.folded.rows.schema.equals(KEY, check_metadata=True)


def test_where_one_fails_the_next_one_loads(tmp_path: Path) -> None:
    def fails() -> Loaded:
        raise RuntimeError("the store is away")

    with pytest.raises(RuntimeError):
        shared(tmp_path, "d", SCHEMA, fails)
    assert parts(shared(tmp_path, "d", SCHEMA, loaded)) == parts(loaded())


def test_a_disk_that_is_full_costs_the_sharing_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pa, "OSFile", full)
    assert parts(shared(tmp_path, "d", SCHEMA, loaded)) == parts(loaded())
    assert [path.name for path in tmp_path.iterdir()] == ["lancewal-keys-d.lock"]
    assert parts(shared(tmp_path / "gone", "d", SCHEMA, loaded)) == parts(loaded())


def test_a_file_that_is_cut_is_not_read(tmp_path: Path) -> None:
    shared(tmp_path, "d", SCHEMA, loaded)
    file = tmp_path / "lancewal-keys-d.arrow"
    file.write_bytes(file.read_bytes()[:100])
    assert parts(shared(tmp_path, "d", SCHEMA, loaded)) == parts(loaded())


def test_old_files_go_and_what_is_mapped_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared(tmp_path, "a", SCHEMA, loaded)
    mapped = shared(tmp_path, "a", SCHEMA, loaded)
    size = (tmp_path / "lancewal-keys-a.arrow").stat().st_size
    monkeypatch.setattr(shared_keys, "FILES_BYTES_MAX", size)
    shared(tmp_path, "b", SCHEMA, loaded)
    assert sorted(path.name for path in tmp_path.glob("*.arrow")) == ["lancewal-keys-b.arrow"]
    assert parts(mapped) == parts(loaded())


def test_outside_of_a_task_nothing_is_shared() -> None:
    assert folder_of_executor() is None
    assert parts(shared(None, "d", SCHEMA, loaded)) == parts(loaded())


def test_a_digest_follows_from_the_values() -> None:
    assert digest_of(("a", 1), None) == digest_of(("a", 1), None) != digest_of(("a", 2), None)
