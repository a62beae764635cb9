"""One version: of the wheel, the chart, the image, Compose, the changelog and the pages."""

from __future__ import annotations

import re
import subprocess
import tomllib
from importlib import metadata
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
VERSION: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
IMAGE = re.compile(r"\blancewal:(\d+\.\d+\.\d+[\w.-]*)")
"""The image's name with its tag, wherever a file has it."""


def images() -> dict[str, set[str]]:
    """File -> tags of the image in it."""
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, text=True, capture_output=True, check=True).stdout.split()
    places = ("docs/", "helm/", "compose/", "Dockerfile", "docker-compose.yml", "README.md", "ARCHITECTURE.md")
    texts = {file: (ROOT / file).read_text() for file in files if file.startswith(places) and not file.endswith(".svg")}
    return {file: set(IMAGE.findall(text)) for file, text in texts.items() if IMAGE.search(text)}


def test_wheel_chart_image_and_compose_have_one_version() -> None:
    chart = yaml.safe_load((ROOT / "helm" / "lancewal" / "Chart.yaml").read_text())
    assert {chart["version"], chart["appVersion"], metadata.version("lancewal")} == {VERSION}
    found = images()
    assert {"Dockerfile", "docker-compose.yml", "docs/how-to/deploy-with-helm.md"} <= found.keys()
    assert {file: tags for file, tags in found.items() if tags != {VERSION}} == {}


def test_the_changelog_has_the_release_below_what_comes_next() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    newest, *_ = [line for line in lines if line.startswith("## [") and line != "## [Unreleased]"]
    assert re.fullmatch(rf"## \[{re.escape(VERSION)}\] - \d{{4}}-\d\d-\d\d", newest)
    assert lines.index("## [Unreleased]") < lines.index(newest)


def test_the_page_of_alternatives_says_how_young_it_is() -> None:
    assert f"version {VERSION}." in (ROOT / "docs" / "alternatives.md").read_text()


def test_the_oldest_typer_takes_literals_as_choices() -> None:
    """Options of commands are annotated with literals, which typer takes from 0.19 on."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (typer,) = (text for text in project["dependencies"] if text.startswith("typer"))
    major, minor, *_ = typer.removeprefix("typer>=").split(".")
    assert (int(major), int(minor)) >= (0, 19)
