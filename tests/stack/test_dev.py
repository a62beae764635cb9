"""``dev.py``: each command has help.  No command takes an option for a version or a folder, or ignores an argument."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import dev

COMMANDS = (*dev.PROGRAMS, "demo", "test", "lint", "venv", "lock", "audit")
#: Their programs print help of their own.
WITH_HELP = {"demo", "bench-peers", "soak", "check-ops", "check-spark", "check-upgrade"}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Replace everything that ``dev.main`` starts; the list records what it would have started, in order."""
    seen: list[tuple[str, ...]] = []
    monkeypatch.setattr(dev, "make_venv", lambda: seen.append(("venv",)))
    monkeypatch.setattr(dev, "fetch_stack", lambda *servers: seen.append(("fetch", *servers)))
    monkeypatch.setattr(dev, "become", lambda _program, *arguments: seen.append(arguments))

    def seen_as(name: str) -> Callable[[object], int]:
        def step(_given: object) -> int:
            seen.append((name,))
            return 0

        return step

    for name in ("checks", "lock", "audit"):
        monkeypatch.setattr(dev, name, seen_as(name))
    return seen


@pytest.mark.parametrize("option", ["--help", "-h"])
@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help(
    command: str, option: str, started: list[tuple[str, ...]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert dev.main([command, option]) == 0
    if command in WITH_HELP:
        assert started[-1][-1] == option
    else:
        assert (started, f"dev.py {command} " in capsys.readouterr().out) == ([], True)


@pytest.mark.parametrize("arguments", [["interop", "--help-me"], ["interop", "8.0.1", "--pre"], ["audit", "--fix"]])
def test_an_option_is_not_taken_for_a_version_or_a_folder(
    arguments: list[str], started: list[tuple[str, ...]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert dev.main(arguments) == 2
    assert f"{arguments[0]} does not take {arguments[-1]}" in capsys.readouterr().err
    assert started == []


@pytest.mark.parametrize("command", ["lint", "venv"])
def test_an_argument_that_would_be_ignored_is_refused(
    command: str, started: list[tuple[str, ...]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert dev.main([command, "core"]) == 2
    assert f"{command} does not take core" in capsys.readouterr().err
    assert started == []
