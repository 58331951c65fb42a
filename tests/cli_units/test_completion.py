"""Proposals of a shell at Tab: only names that it takes as they stand."""

from __future__ import annotations

import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from drainer.cli import completion
from drainer.cli.app import app

NONE: Any = SimpleNamespace()
HARMLESS = ("a-b_9.plan.json", "a@b.plan.json", "a:b,c+d=e.plan.json")
ODD = "äß\u3164\u202e\u00a0\u2028\u0661%"


def proposed(begins: str) -> list[str]:
    return completion.propose("plan", NONE, begins)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_name_is_proposed_only_if_no_shell_finds_anything_in_it(folder: Path) -> None:
    written = [chr(code) for code in range(1, 128) if chr(code) != "/"]
    for char in [*written, *ODD]:
        (folder / f"a{char}z.plan.json").touch()
    for name in (*HARMLESS, "a$(touch x).plan.json", "a\\$(touch x).plan.json", "a`x`.plan.json"):
        (folder / name).touch()
    found = proposed("a")
    assert set(HARMLESS) < set(found)
    assert [name for name in found if shlex.quote(name) != name or not name.isascii()] == []
    assert len(found) == len(HARMLESS) + sum(
        char.isalnum() or char in "_.@:+,=-" for char in written
    )


def test_no_name_that_reads_as_an_option_or_a_command_is_proposed(folder: Path) -> None:
    for name in ("-rf.plan.json", "=ls.plan.json", "~root.plan.json", "ok.plan.json"):
        (folder / name).touch()
    assert proposed("-") == proposed("=") == proposed("~") == []
    assert "ok.plan.json" in proposed("")


def test_the_names_of_rare_settings_are_proposed() -> None:
    words = {"COMP_WORDS": "drainer run --tune max-", "COMP_CWORD": "3"}
    shown = CliRunner().invoke(app, [], env={"_DRAINER_COMPLETE": "complete_bash", **words})
    assert shown.stdout.split() == ["max-doubt=", "max-outage="]
