"""The documents are true: options, links, numbers, and the commands of the README."""

from __future__ import annotations

import ast
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from docs.pages import PAGES, ROOT, product
from drainer import errors
from drainer.cli.app import app
from drainer.cli.declared import declared_by
from drainer.loading.loader import load_handler
from drainer.probe.probe import TABLE, rights_by_command
from scenarios.trust.cases import all_cases
from scenarios.trust.rights import ATTEMPTS

README = (ROOT / "README.md").read_text()
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
generate = runpy.run_path(str(ROOT / "docs/generate.py"))
leaves = generate["leaves"]


def test_every_command_and_option_is_documented() -> None:
    found = {path.name: path.read_text() for path in generate["FOLDER"].glob("*.md")}

    assert found == generate["pages"](), (
        "docs/reference/cli does not fit the commands. To write it: python docs/generate.py"
    )


def test_the_page_of_a_command_has_every_option_with_its_meaning() -> None:
    for words, command in leaves(get_command(app), ()):
        page = (ROOT / f"docs/reference/cli/{words.split()[0]}.md").read_text()
        [part] = re.findall(rf"^##? drainer {words}\n(.+?)(?=^##? |\Z)", page, re.M | re.S)
        rows = [re.split(r" \| ?", line) for line in part.splitlines() if line.startswith("`")]
        types = [dict(re.findall(r"`(\S+?)(?: ([^`]+))?`", row[0])) for row in rows]
        for param in command.params:
            is_option = param.opts[0].startswith("-")
            typed = {*param.opts, *param.secondary_opts} if is_option else {param.metavar}
            assert [set(each) for each in types].count(typed) == 1, (words, typed)
            place = [set(each) for each in types].index(typed)
            row, declared = rows[place], declared_by(command).get(param.name)
            assert not is_option or param.is_flag or any(types[place].values()), (words, row)
            assert len(row[1].split()) > 1, (words, row)
            assert not param.required or row[2] == "required", (words, row)
            known = f"`{declared.variable}`" if declared and declared.variable else ""
            assert row[3].strip() == known, (words, row)


def test_the_product_names_pages_that_there_are_and_only_in_docstrings() -> None:
    for path, tree in product().items():
        for page in re.findall(r"docs/[\w/-]+\.md", path.read_text()):
            assert (ROOT / page).exists(), f"{path.relative_to(ROOT)} names {page}"
        documented = (each for each in ast.walk(tree) if isinstance(each, DOCUMENTED))
        docstrings = {ast.get_docstring(each, clean=False) for each in documented}
        for each in ast.walk(tree):
            if isinstance(each, ast.Constant) and isinstance(each.value, str):
                assert "docs/" not in each.value or each.value in docstrings, (path, each.value)


@pytest.mark.long
def test_the_site_is_made_without_a_warning_or_the_network(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "docs", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert {"llms.txt", "output.schema.json"} <= {each.name for each in tmp_path.iterdir()}
    for page in tmp_path.rglob("*.html"):
        assert not re.search(r"<(?:script|link|img)[^>]+=\"(?:https?:)?//", page.read_text()), page


def test_the_rights_of_every_command_are_documented() -> None:
    def words(command: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
        if not (children := getattr(command, "commands", {})) or path == ("limits",):
            yield " ".join(path)
        for name, child in children.items():
            yield from words(child, (*path, name))

    table = rights_by_command()

    assert TABLE.read_text() in (ROOT / "docs/howto/permissions.md").read_text()
    assert set(words(get_command(app))) <= set(table)
    assert {attempt.command for attempt in ATTEMPTS} == {
        command for command, rights in table.items() if rights
    }


ATTACKERS = ["Another user of your machine", "Producers of your topic", "Users who create groups"]
ATTACKERS += ["Senders of a plan", "Readers of the metrics port", "Readers of drainer's output"]
ATTACKERS += ["Users who may register schemas"]


def test_every_promise_about_an_attacker_names_a_case_that_tries_it() -> None:
    page = (ROOT / "docs/explanation/trust.md").read_text()
    cases = {case.attempt.__name__ for case in all_cases()}
    for attacker in ATTACKERS:
        section = page.split(f"\n## {attacker}\n")[1].split("\n## ")[0].splitlines()
        _, _, *rows = [line for line in section if line.count(" | ") == 2 or "---|" in line]
        assert rows
        for row in rows:
            named = set(re.findall(r"`(\w+)`", row.split(" | ")[2]))
            assert named, row
            assert named <= cases, row


def anchors(document: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_somewhere() -> None:
    for document in (*PAGES, ROOT / "CHANGELOG.md"):
        for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", document.read_text()):
            path, _, anchor = target.partition("#")
            linked = (document.parent / path).resolve() if path else document
            assert linked.exists(), f"{document.name} links to {target}"
            assert not anchor or anchor in anchors(linked), f"{document.name} links to {target}"


def test_each_exit_code_is_on_the_page_and_no_other() -> None:
    page = (ROOT / "docs/reference/exit-codes.md").read_text()
    codes = {value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    assert [int(code) for code in re.findall(r"^(\d+) \|", page, re.M)] == sorted(codes)


def test_the_readme_has_one_command_for_the_main_job_and_that_of_ci_for_the_tests() -> None:
    main_job, tests = re.findall(r"^\$ (python3 -m venv .+ -e .+)$", README, re.MULTILINE)
    assert main_job.endswith("drainer demo")
    assert tests.endswith("pytest")
    assert tests in (ROOT / ".ci/run").read_text().splitlines()


def test_the_recording_begins_with_a_command_and_shows_the_kill() -> None:
    film = (ROOT / "docs/img/recording.svg").read_text()
    rows = {
        name: re.sub(r"<[^>]+>", "", row)
        for name, row in re.findall(r'<g id="(r\d+)">(.*?)</g>', film)
    }
    (first,) = re.findall(r'<g transform="translate\(0 0\)">(.*?)</g>', film)
    begins = [rows[name] for name in re.findall(r'href="#(r\d+)"', first)]

    assert begins[0].startswith("$ drainer run ")
    assert any(re.fullmatch(r"\$ kill -9 \d+", row) for row in rows.values())
    assert "Killed" in rows.values()
    assert any(row.endswith("✓ adds up") for row in rows.values())


def test_the_first_handler_works_as_it_is_printed(tmp_path: Path) -> None:
    (code,) = re.findall(r"## A first handler\n\n```python\n(.+?)```", README, re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    file = tmp_path / "first_handler_of_the_readme.py"
    file.write_text(code)

    handler = load_handler(f"{file}:Reindex")

    assert handler.is_async
    assert handler.split is not None
