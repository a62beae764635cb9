"""Commands that meet a damaged object: a declared exit code, the object's name, never a traceback."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from lancewal_core.cli import program
from tests.support.pipeline import Failures, Pipeline

DAMAGES: Mapping[str, Callable[[bytes], bytes]] = {
    "empty": lambda whole: b"",
    "truncated": lambda whole: whole[: len(whole) // 2],
    "other bytes": lambda whole: b"\x00\xffother" * 50,
    "a huge length at the start": lambda whole: b"\xff" * 8 + whole[8:],
    "a huge length at the end": lambda whole: whole[:-8] + b"\xff" * 8,
}
INTERNAL = 5


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """Merged rows, a flush that is not merged, and segments that are not flushed."""
    made = Pipeline(tmp_path_factory.mktemp("made"), seed=5, partitions=2, observer=Failures())
    made.produce(60)
    made.merge_all()
    made.produce(60)
    made.ingest()
    made.hand_over()
    made.produce(20)
    made.ingest()
    made.crash()
    yield made
    made.close()


@pytest.mark.parametrize("command", [["read"], ["status"], ["table", "export-memwal"]], ids=" ".join)
@pytest.mark.parametrize("damage", DAMAGES)
def test_it_is_named(
    pipeline: Pipeline, tmp_path: Path, damage: str, command: list[str], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    settings = tmp_path / "lancewal.yaml"
    settings.write_text(yaml.safe_dump({"table": {"uri": pipeline.uri}}))
    objects = sorted(path for path in (Path(pipeline.uri) / "_lancewal").rglob("*") if path.is_file())
    failed = 0
    for number, path in enumerate(objects):
        whole = path.read_bytes()
        file = [str(tmp_path / f"{number}.bin")] if command[-1] == "export-memwal" else []
        path.write_bytes(DAMAGES[damage](whole))
        try:
            code = program.run([*command, *file, "--config", str(settings)])
        finally:
            path.write_bytes(whole)
        said = b"".join(capfdbinary.readouterr()).decode(errors="replace")
        assert code in range(INTERNAL), (path, said)
        assert "Traceback" not in said, (path, said)
        assert code == 0 or f"{path.parent.name}/{path.name}" in said, (path, code, said)
        failed += code != 0
    assert failed, "no damage was met"
