"""The promises of pages, and what shows them: ``docs/evidence.yaml`` and the page made of it.

The README promises where it has a figure or one of ``_WORDS`` in text that is no code, and in the
table of guarantees. A quote of the file has to cover each of these.
"""

from __future__ import annotations

import ast
import re
import runpy
import shlex
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from docs.pages import ROOT

generate = runpy.run_path(str(ROOT / "docs/generate.py"))
LEDGER = generate["evidence"]()
PROMISES = [each for promises in LEDGER["promises"].values() for each in promises]
README = (ROOT / "README.md").read_text()
QUOTES = [quote for each in PROMISES for quote in each["quotes"].get("README.md", ())]

_WORDS = "never|always|nothing|none|nobody|no|every|each|exactly|at least|at most|only|without"
# A number within a name, as in KIP-932, is no figure, and neither is the time of a day.
_FIGURE = r"(?<![\w.-])\d+(?:[.,]\d+)*\b(?! ?[ap]m\b)|\btwice\b|\bhalf\b|\btimes as\b"
_PROMISE = re.compile(rf"\b(?:{_WORDS})\b|{_FIGURE}", re.IGNORECASE)
_GUARANTEES = re.compile(r"## What it guarantees\n(.+?)\n\n(?!\|)", re.DOTALL)
_MARK = "…"


def passages(text: str) -> Iterator[str]:
    """The paragraphs, list items and cells of a page as they are read: without blocks of code,
    headings and pictures, and with the texts of links in the place of links."""
    text = re.sub(
        r"^( *)```.*?^\1```$|^#+ [^\n]+$|!\[[^]]*\]\([^)]*\)", "", text, flags=re.M | re.S
    )
    text = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", text)
    for block in re.split(r"\n\n|\n(?= *[-|>] | *\d+\. )", text):
        lines = block.splitlines() if "|" in block else [block]
        for line in lines:
            for cell in re.split(r"(?<!\\)\|", line):
                if words := " ".join(cell.split()).removeprefix("- "):
                    yield words


def without_entry(text: str, quotes: Iterable[str]) -> Iterator[str]:
    """Yield the sentences of a page that promise something which no quote covers."""
    longest_first = sorted(quotes, key=len, reverse=True)
    [table] = _GUARANTEES.findall(text)
    guarantees = set(passages(table))
    for passage in passages(text):
        left = passage
        for quote in longest_first:
            left = left.replace(quote, _MARK)
        for sentence in re.split(r"(?<=[.?!]) ", left):
            plain = re.sub(r"`[^`]*`", "", sentence)
            is_guarantee = passage in guarantees and len(re.findall(r"\w+", plain)) > 2
            if (_PROMISE.search(plain) or is_guarantee) and sentence not in LEDGER["no_promise"]:
                yield sentence


def test_each_promise_of_the_readme_has_an_entry() -> None:
    found = list(without_entry(README, QUOTES))
    assert not found, f"docs/evidence.yaml has no quote of the README that covers {found}"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("## Install\n", "## Install\n\ndrainer never loses data.\n"),
        ("with their limits,", "with their limits, and never loses data,"),
        ("\n| Commit |", "\n| Speed | It is fast. |\n| Commit |"),
        ("| drainer | 830", "| drainer | 100 times as fast as others, 830"),
        ("- Your messages consist", "- It takes at most a minute.\n- Your messages consist"),
        ("830 times faster", "930 times faster"),
    ],
)
def test_a_new_promise_needs_an_entry(old: str, new: str) -> None:
    assert README.count(old) == 1
    assert list(without_entry(README.replace(old, new), QUOTES))


def test_commands_and_their_output_promise_nothing() -> None:
    text = README.replace("## Install\n", "## Install\n\n```console\n$ never 5\nalways 7\n```\n")
    assert text != README
    assert not list(without_entry(text, QUOTES))


def test_each_quote_stands_on_its_page() -> None:
    quoted = [(page, q) for each in PROMISES for page, all_ in each["quotes"].items() for q in all_]
    for page, quote in (*quoted, *(("README.md", each) for each in LEDGER["no_promise"])):
        found = passages((ROOT / page).read_text())
        assert any(quote in passage for passage in found), f"{page} does not say: {quote}"


def names_of_tests(path: str) -> set[str]:
    """The names of the tests of a file, which is not imported."""
    tree = ast.parse((ROOT / path).read_text())
    functions = (each for each in tree.body if isinstance(each, ast.FunctionDef))
    return {each.name for each in functions if each.name.startswith("test_")}


def is_scenario(name: str) -> bool:
    return (ROOT / f"{name.replace('.', '/')}/__main__.py").exists()


def test_what_shows_a_promise_exists() -> None:
    for each in PROMISES:
        assert each["evidence"], each["id"]
        for shown in each["evidence"]:
            path, _, name = shown.partition("::")
            if name:
                assert name in names_of_tests(path), f"{each['id']}: there is no {shown}"
            else:
                [module] = re.findall(r"^python -m (scenarios\.\w+)$", shown)
                assert is_scenario(module), f"{each['id']}: there is no {module}"


def test_each_promise_can_be_inspected_by_one_command() -> None:
    for each in PROMISES:
        match shlex.split(each["inspect"]):
            case ["pytest", *words]:
                paths = [word for word in words if word.startswith("tests/")]
                assert paths, each["id"]
                assert all((ROOT / path).exists() for path in paths), each["id"]
            case ["python", "-m", module, *_]:
                assert is_scenario(module), each["id"]
            case words:
                assert words[0] == "drainer", each["id"]


def test_each_entry_is_complete() -> None:
    fields = {"id", "quotes", "scope", "limit", "evidence", "inspect"}
    for each in PROMISES:
        assert each.keys() == fields, each["id"]
        assert all(texts_of(each)), each["id"]
    ids = [each["id"] for each in PROMISES]
    assert len(set(ids)) == len(ids)


def texts_of(promise: dict[str, Any]) -> Iterator[str]:
    yield from (promise[field] for field in ("scope", "limit", "inspect"))
    for quotes in promise["quotes"].values():
        yield from quotes


def test_the_page_is_as_the_file_makes_it() -> None:
    assert generate["EVIDENCE_PAGE"].read_text() == generate["evidence_page"](), (
        "docs/reference/evidence.md does not fit docs/evidence.yaml. To write it:"
        " python docs/generate.py"
    )
