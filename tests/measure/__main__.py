"""``python3 dev.py measure [COMMIT]``: print the figures.  ``--keep``: first sum the last whole test run into a file.

``python3 dev.py prose BASE [--docstrings]``: see ``compared``.  ``python3 dev.py prose --breaches [FOLDER]``: each text that
breaks the rules of ``texts``, as file:line.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping

from tests.measure import compared, lines, seconds, structure, texts
from tests.measure.tree import PARTS, part_of, product, read_tree


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["prose"]:
        return plain(arguments[1:])
    commits = [argument for argument in arguments if argument != "--keep"]
    if len(commits) > 1 or any(commit.startswith("-") for commit in commits):
        print(f"measure takes one commit and --keep, not: {' '.join(arguments)}", file=sys.stderr)
        return 2
    try:
        if "--keep" in arguments:
            seconds.keep()
        tree = read_tree(*commits)
    except (LookupError, FileNotFoundError) as error:
        print(error, file=sys.stderr)
        return 2
    for line in report(tree):
        print(line)
    return 0


def plain(arguments: list[str]) -> int:
    """``dev.py prose``; returns the exit code."""
    match arguments:
        case ["--breaches", *folders] if len(folders) < 2:
            found = sorted(breaches(product(read_tree()), *folders))
            print(*found, f"{len(found)} texts", sep="\n")
            return 0
        case [base] | [base, "--docstrings"] if not base.startswith("-"):
            try:
                told, code = compared.report(base, "words" if "--docstrings" in arguments else "messages")
            except LookupError as error:
                print(error, file=sys.stderr)
                return 2
            print(*told, sep="\n", end="\n" if told else "")
            return code
        case _:
            print("usage: dev.py prose BASE [--docstrings], or dev.py prose --breaches [FOLDER]", file=sys.stderr)
            return 2


def breaches(files: Mapping[str, str], folder: str = "") -> Iterator[str]:
    """Yield each docstring and message that breaks a rule, as ``file:line what``."""
    for name, source in files.items():
        if not name.startswith(folder):
            continue
        for what, found in (("docstring", texts.docstrings(source, name)), ("message", texts.messages(source))):
            yield from (f"{name}:{one.line} {what}" for one in found if not texts.is_plain(one.text))


def report(tree: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of the report."""
    files = product(tree)
    yield from sizes(files)
    yield from prose(files)
    yield from shape(files)
    yield from tests(tree)


def sizes(files: Mapping[str, str]) -> Iterator[str]:
    yield f"{'part':10}{'files':>7}{'lines':>9}{'code':>9}{'docstring':>11}"
    for part in [part for part in PARTS if any(part_of(name) == part for name in files)]:
        yield _size(part, [source for name, source in files.items() if part_of(name) == part])
    yield _size("all", list(files.values()))


def _size(name: str, sources: list[str]) -> str:
    found = lines.total(sources)
    return f"{name:10}{len(sources):7,}{found.all:9,}{found.code:9,}{found.docstring / max(found.all, 1):11.1%}"


def prose(files: Mapping[str, str]) -> Iterator[str]:
    found = [one for name, source in files.items() for one in texts.docstrings(source, name)]
    opened = {one for one in found if texts.opens_badly(one.text)}
    long = {one for one in found if texts.long_sentences(one.text)}
    yield ""
    yield f"docstrings: {len(found):,}"
    yield f"  with an opening that needs its surroundings: {len(opened):,}"
    yield f"  with a sentence over {texts.WORDS_MAX} words: {len(long):,}"
    yield f"  with one or both: {len(opened | long):,}"


def shape(files: Mapping[str, str]) -> Iterator[str]:
    arrows = structure.imported(files)
    circles = structure.circles(arrows)
    upwards = structure.arrows_upwards(arrows)
    sizes = structure.folders(files)
    largest = max(sizes, key=lambda folder: sizes[folder])
    twice = structure.names_used_twice(files)
    many = structure.many_parameters(files)
    yield ""
    yield f"circles of imports: {len(circles)} {_listed(f'{len(circle)} files' for circle in circles)}"
    yield f"arrows upwards: {len(upwards)} {_listed(f'{low} -> {high}' for low, high in upwards)}"
    yield f"largest folder: {sizes[largest]} entries ({largest})"
    yield f"public class names used twice: {len(twice)} {_listed(twice)}"
    yield f"functions over six parameters: {len(many)} {_listed(many)}"


def _listed(names: Iterable[str]) -> str:
    found = ", ".join(names)
    return f"({found})" if found else ""


def tests(tree: Mapping[str, str]) -> Iterator[str]:
    taken = seconds.by_folder(tree)
    yield ""
    if not taken:
        yield f"tests: no figures ({seconds.FILE})"
        return
    yield f"{'tests':14}{'number':>8}{'seconds':>10}{'processors':>12}"
    for folder, one in sorted(taken.items(), key=lambda found: -found[1].seconds):
        yield _taken(folder, one)
    yield _taken("all", sum(taken.values(), seconds.Taken()))


def _taken(name: str, taken: seconds.Taken) -> str:
    return f"{name:14}{taken.tests:8,}{taken.seconds:10,.0f}{taken.cpu_seconds:12,.0f}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
