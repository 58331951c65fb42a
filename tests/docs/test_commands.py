"""Commands of the pages: every one is drainer's, and does what its page claims."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from typer.main import get_command

from docs.pages import (
    DRAINER,
    GENERATED,
    PAGES,
    ROOT,
    Step,
    commands_of_drainer,
    mentioned,
    options_mentioned,
    product,
    steps,
)
from docs.prepared import prepared
from docs.reader import LEFT_OUT, left_out
from docs.transcript import ANYTHING, differs
from drainer.cli.app import app
from drainer.cli.declared import declared_by, given_in
from drainer.errors import Refused

COMMAND: Any = get_command(app)
ENDS_A_COMMAND = ("|", ">", "<", "&", "&&")
TUTORIAL = "docs/tutorial.md"
QUICK = ("README.md",)  # the others are long
COMPARED = ("docs/howto/rekey.md", "docs/howto/spark-verbs.md")  # their output, too
# Options of other programs that pages name, and those that typer adds.
OTHERS = {
    "--help",
    "--install-completion",
    "--resource-pattern-type",  # of kafka-acls
    "--deploy-mode",  # of spark-submit
    "--list",  # of kafka-groups
    "--format",  # of aws
    "--example",  # made up, for who adds an option
    "--files",  # of spark-submit
    *("--build-arg", "--force"),  # of podman and kubectl
    "--minutes",  # of a benchmark
    *("--replicas", "--sync-policy"),  # of kubectl and argocd
}
OF_OTHER_PROGRAMS = {
    *("--describe", "--members", "--reset-offsets"),  # of Kafka's tools
    *("--cluster-id", "--config"),
    *("--include_imports", "--descriptor_set_in", "--descriptor_set_out"),  # of protoc
    *("--py-files", "--conf"),  # of spark-submit
    "--from-file",  # of kubectl
}


def options(command: Any) -> set[str]:
    """The options that a command takes, and those below it."""
    own = {word for each in command.params for word in (*each.opts, *each.secondary_opts)}
    return own.union(*map(options, getattr(command, "commands", {}).values()))


def settings_of(command: Any) -> set[str]:
    """The rare settings that a command takes by ``--tune``, and those below it."""
    own = {each.label for each in declared_by(command).values() if each.tune}
    return own.union(*map(settings_of, getattr(command, "commands", {}).values()))


RARE = settings_of(COMMAND) | {"NAME", "example"}


def rare_settings(text: str) -> set[str]:
    return set(re.findall(r"--tune ([A-Za-z][\w-]*)", text))


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def parsed(words: list[str]) -> Any:
    """Context that a command would run in. Raises typer's error for words that it can't take."""
    command, context = COMMAND, COMMAND.make_context("drainer", list(words))
    while getattr(command, "commands", {}) and (
        rest := command.make_parser(context).parse_args(args=list(words))[1]
    ):
        word, command, words = command.resolve_command(context, rest)
        context = command.make_context(word, list(words), parent=context)
    return context


def words_of(step: Step) -> list[str]:
    """Words of drainer's command in a line of the shell."""
    line = DRAINER.split(step.does, maxsplit=1)[1].rstrip(")")
    words = step._replace(does=f"drainer {line}").words[1:]
    return words[: next((at for at, word in enumerate(words) if word in ENDS_A_COMMAND), None)]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_command_of_a_page_is_taken_by_the_parser(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in [each for each in os.environ if each.startswith("DRAINER")]:
        monkeypatch.delenv(variable)
    for step in steps(page.read_text()):
        if step.does.startswith("export DRAINER_") and "$" not in step.does:
            for pair in step.words[1:]:
                monkeypatch.setenv(*pair.split("=", 1))
    for step in commands_of_drainer(page.read_text()):
        try:
            context = parsed(words_of(step))
            given_in(context, declared_by(context.command).values())
        except Refused:  # a file that it names is not here
            continue
        except Exception as error:
            pytest.fail(f"{name(page)}: $ {step.does}\n{type(error).__name__}: {error}")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_command_that_a_page_mentions_is_one_with_these_options(page: Path) -> None:
    for words in mentioned(page.read_text()):
        command = COMMAND
        found = {word for each in command.params for word in each.opts} | OTHERS
        for word in words[1:]:
            command = getattr(command, "commands", {}).get(word, command)
        assert command is not COMMAND or words[1:2] == [] or words[1] in found, words
        found |= {word for each in command.params for word in (*each.opts, *each.secondary_opts)}
        assert {word.split("=")[0] for word in words if word.startswith("-")} <= found, words


def test_every_option_that_a_page_names_is_one_of_some_command() -> None:
    known = options(COMMAND) | OTHERS
    for page in PAGES:
        if page.parent.name == "scenarios":  # which have their own
            continue
        assert set(options_mentioned(page.read_text())) <= known, name(page)
        assert rare_settings(page.read_text()) <= RARE, name(page)


def test_every_option_that_a_text_of_the_program_names_is_one_that_can_be_typed() -> None:
    known = options(COMMAND) | OTHERS | OF_OTHER_PROGRAMS
    for path, tree in product().items():
        for each in ast.walk(tree):
            if isinstance(each, ast.Constant) and isinstance(each.value, str):
                named = set(re.findall(r"(?<![\w-])--[a-z][\w-]+", each.value))
                assert named <= known, (path, each.value)
                assert rare_settings(each.value) <= RARE, (path, each.value)


def test_drainer_is_installed_from_a_clone() -> None:
    for page in PAGES:
        for step in steps(page.read_text()):
            for installs in re.findall(r"pip install ([^&]*)", step.does):
                names = {word.strip("'").partition("[")[0] for word in installs.split()}
                assert "drainer" not in names, step.does


def run_on(page: Path) -> list[Step]:
    """The steps of a page that a test types."""
    return [step for step in steps(page.read_text()) if step.file or not left_out(step)]


WRITTEN = [page for page in PAGES if page.parent != GENERATED and name(page) != TUTORIAL]


def test_what_is_not_typed_is_on_some_page() -> None:
    found = [step.does for page in PAGES for step in steps(page.read_text())]
    for pattern in LEFT_OUT:
        assert any(re.search(pattern, does) for does in found), pattern


@pytest.fixture
def alone(folder_of_all: Path) -> Iterator[None]:
    """Pages share the names of topics: only one of them is typed at a time."""
    with FileLock(folder_of_all / "pages.lock"):
        yield


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=name(page), marks=[] if name(page) in QUICK else [pytest.mark.long])
        for page in WRITTEN
        if run_on(page)
    ],
)
@pytest.mark.usefixtures("alone")
def test_the_commands_of_a_page_do_what_it_claims(
    page: Path, tmp_path: Path, bootstrap: str
) -> None:
    with prepared(name(page), tmp_path, bootstrap) as reader:
        for step in run_on(page):
            reader.does(step, compares=name(page) in COMPARED)


@pytest.mark.usefixtures("alone")
def test_the_tutorial_is_true(tmp_path: Path, bootstrap: str) -> None:
    walked = list(steps((ROOT / TUTORIAL).read_text()))
    with prepared(TUTORIAL, tmp_path, bootstrap) as reader:
        for step in walked:
            reader.does(step, compares=True)

    done = {line.split()[0] for line in (tmp_path / "done.txt").read_text().splitlines()}
    assert len(done) == 30_000
    assert Step("sort -u done.txt | wc -l", ["30000"]) in walked


@pytest.mark.parametrize(
    ("printed", "output", "is_same"),
    [
        (["a 7"], ["a  3,001 "], True),
        (["a 2,999"], ["a 3,000"], False),
        (["took 7.0s, 3%"], ["took 1m 30s, 4.5%"], True),
        (["a", ANYTHING, "c", "d"], ["a", "b", "c", "x", "c", "d"], True),
        (["b"], ["a", "b"], False),
        (["a", ANYTHING, "c", ANYTHING, "b"], ["a", "b", "c"], False),
    ],
)
def test_what_is_printed_is_found_in_order(
    printed: list[str], output: list[str], is_same: bool
) -> None:
    assert (differs(printed, output) == "") == is_same
