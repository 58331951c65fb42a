"""The documents are true: commands, options, links, and what the README asks people to type."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from drainer.cli.app import app
from drainer.loader import load_handler
from scenarios.trust.rights import ATTEMPTS, rights_by_command

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "scenarios/README.md",
]
README = (ROOT / "README.md").read_text()
GENERATE = [sys.executable, "-m", "typer", "drainer.cli", "utils", "docs", "--name", "drainer"]


def test_every_command_and_option_is_documented() -> None:
    made = subprocess.run(GENERATE, capture_output=True, text=True, check=True, cwd=ROOT).stdout

    assert (ROOT / "docs/cli.md").read_text().strip() == made.strip(), (
        "docs/cli.md is not what the commands say. To make it again: python -m typer drainer.cli"
        " utils docs --name drainer --output docs/cli.md"
    )


def test_the_rights_of_every_command_are_documented() -> None:
    def words(command: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
        if not (children := getattr(command, "commands", {})) or path == ("limits",):
            yield " ".join(path)
        for name, child in children.items():
            yield from words(child, (*path, name))

    table = rights_by_command()

    assert set(words(get_command(app))) <= set(table)
    assert {attempt.command for attempt in ATTEMPTS} == {
        command for command, rights in table.items() if rights
    }


def anchors(document: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", document.read_text()):
        path, _, anchor = target.partition("#")
        linked = (document.parent / path).resolve() if path else document
        assert linked.exists(), f"{document.name} links to {target}"
        if anchor:
            assert anchor in anchors(linked), f"{document.name} links to {target}"


def commands_of_the_readme() -> list[str]:
    return re.findall(r"^python3 -m venv .+$", README, re.MULTILINE)


def test_the_readme_has_one_command_for_the_main_job_and_one_for_the_tests() -> None:
    main_job, tests = commands_of_the_readme()

    assert main_job.endswith("drainer demo")
    assert tests.endswith("pytest")


def test_ci_runs_the_very_test_command_of_the_readme() -> None:
    _, tests = commands_of_the_readme()

    assert tests in (ROOT / ".ci/run").read_text().splitlines()


def test_the_first_handler_works_as_it_is_printed(tmp_path: Path) -> None:
    (code,) = re.findall(r"## A first handler\n\n```python\n(.+?)```", README, re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    file = tmp_path / "first_handler_of_the_readme.py"
    file.write_text(code)

    handler = load_handler(f"{file}:Reindex")

    assert handler.is_async
    assert handler.split is not None
