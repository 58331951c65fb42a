"""The handlers that the pages for their authors print work as the pages claim."""

from __future__ import annotations

import re
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

from docs.pages import ROOT
from drainer.handler import Handler
from drainer.handlers.partitioner import by_range
from drainer.loading.loader import load_handler
from drainer.message import SubMessage

DOCS = ROOT / "docs"
PAGES = [  # The long test of postgresql.md loads and runs that page's handler with its clients.
    *(
        DOCS / "howto" / f"{name}.md"
        for name in ("check-a-handler", "failures", "hot-key", "rekey")
    ),
    *(DOCS / "reference" / f"{name}.md" for name in ("configuration", "handler", "rules")),
]


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.+?)```", page.read_text(), re.DOTALL)


HANDLERS = [
    pytest.param(code, name, id=f"{page.stem}-{name}")
    for page in PAGES
    for code in python_blocks(page)
    for name in re.findall(r"^class (\w+)\(drainer\.Handler\)", code, re.MULTILINE)
]


def test_every_handler_was_found() -> None:
    assert [param.id for param in HANDLERS] == [
        "check-a-handler-Reindex",
        "hot-key-Totals",
        "hot-key-Bulk",
        "handler-Reindex",
    ]


@pytest.mark.parametrize(("code", "name"), HANDLERS)
def test_a_printed_handler_can_be_loaded(code: str, name: str, tmp_path: Path) -> None:
    file = tmp_path / f"printed_{name.lower()}.py"
    file.write_text(f"import drainer\n\n{code}")

    handler = load_handler(f"{file}:{name}")

    assert isinstance(handler.target, Handler)
    assert handler.is_async
    assert (handler.split is None) == ("def split" not in code)


def test_the_handlers_for_a_hot_key_work_as_they_are_printed(tmp_path: Path) -> None:
    code = "import drainer\n\n" + "\n".join(python_blocks(DOCS / "howto/hot-key.md"))
    file = tmp_path / "handlers_for_a_hot_key.py"
    file.write_text(code)

    totals, bulk = (load_handler(f"{file}:{name}") for name in ("Totals", "Bulk"))

    assert totals.batching is not None
    assert totals.batching.coalesce is not None
    folded = totals.batching.coalesce(SubMessage("app-admin", 3), SubMessage("app-admin", 4))
    assert folded is not None
    assert (folded.key, folded.payload) == ("app-admin", 7)
    assert bulk.batching is not None
    assert bulk.batching.most == 500


def test_the_rule_for_producers_is_that_of_ranges() -> None:
    (code,) = python_blocks(DOCS / "howto/rekey.md")

    for partitions in (1, 12, 24):
        for key in (b"", b"doc-3", b"\xff"):
            found = {"zlib": zlib, "key": key, "partitions": partitions}
            exec(code, found)
            assert found["partition"] == by_range(key, partitions)


def test_the_unit_test_of_a_handler_takes_five_lines_and_passes() -> None:
    code, _ = python_blocks(DOCS / "howto/check-a-handler.md")
    (test,) = re.findall(r"^def (test_.+?):\n((?: {4}.+\n)+)", code, re.MULTILINE)
    found: dict[str, Any] = {}
    exec(code, found)

    found[test[0].removesuffix("()")]()

    assert test[1].count("\n") < 5


@pytest.mark.long
def test_the_tests_of_a_handler_work_as_they_are_printed(tmp_path: Path) -> None:
    page = (DOCS / "howto/check-a-handler.md").read_text()
    code = "\n".join(python_blocks(DOCS / "howto/check-a-handler.md"))
    (printed,) = re.findall(
        r"fails the second of these, with\n\n```text\n(.+?)```", page, re.DOTALL
    )
    line = "        self.index[sub.key] = sub.payload\n"
    broken = code.replace(line, line + '        self.index["newest"] = sub.key\n')
    for name, text in (("test_reindex.py", code), ("test_newest.py", broken)):
        (tmp_path / name).write_text(text)

    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    outcome = ended.stdout

    assert "1 failed, 7 passed" in outcome
    assert " ".join(printed.split()) in " ".join(outcome.replace("\nE ", " ").split())
