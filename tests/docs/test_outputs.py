"""The schema of what commands print fits the commands, and llms.txt names all pages and commands.

Tests that run commands validate what these print (command/documented.py).
"""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from typer.main import get_command

from command.documented import ensure_documented, problems
from docs.pages import ROOT
from docs.test_formats import FULL_PLAN, FULL_SUMMARY
from drainer.cli.app import app
from drainer.limits.search.boundary import as_json
from view.limits import of_each_end

generate = runpy.run_path(str(ROOT / "docs/generate.py"))
SCHEMA = json.loads((ROOT / "docs/reference/output.schema.json").read_text())
LLMS = (ROOT / "docs/llms.txt").read_text()
LINKS = re.findall(r"\]\(([^)]+)\)", LLMS)
COMMON = {"status": "ok", "exit_code": 0, "hint": None, "next": None}


def commands() -> dict[str, Any]:
    return dict(generate["leaves"](get_command(app), ()))


def test_the_schema_is_as_the_records_and_declarations_make_it() -> None:
    assert generate["output_schema_text"]() == json.dumps(SCHEMA, indent=1) + "\n", (
        "docs/reference/output.schema.json is old. To write it: python docs/generate.py"
    )
    Draft202012Validator.check_schema(SCHEMA)


def test_every_command_with_a_form_for_programs_has_a_schema_and_no_other() -> None:
    printing = {
        words
        for words, command in commands().items()
        if any("--output" in each.opts for each in command.params)
    }
    assert {name for name in SCHEMA["$defs"] if name.islower()} - {"error"} == printing


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("run", FULL_SUMMARY.as_json()),
        ("plan show", {**FULL_PLAN, "last_run": "done", "last_end": None}),
        ("limits", {"out": "limits.json", "limits": as_json(of_each_end())}),
        ("sandbox up", {"bootstrap_servers": "b:9092", "folder": "/f", "registry": None}),
    ],
)
def test_a_full_object_has_the_fields_of_the_schema(command: str, found: dict[str, Any]) -> None:
    found.pop("digest", None)
    assert problems(command, json.loads(json.dumps({**COMMON, **found}))) == []
    missing = problems(command, COMMON)
    assert any("is a required property" in each for each in missing)


def test_a_reader_of_the_schema_takes_fields_that_a_later_drainer_adds() -> None:
    of_ps = {"$ref": "#/$defs/ps", "$defs": SCHEMA["$defs"]}
    Draft202012Validator(of_ps).validate({**COMMON, "drains": [], "later": 1})


def test_a_field_that_is_not_declared_is_named_with_the_place_to_declare_it() -> None:
    out = json.dumps({**COMMON, "drains": [], "colour": "red"})
    with pytest.raises(AssertionError, match=r"'colour' was unexpected") as raised:
        ensure_documented(["ps", "-o", "json"], out)
    assert "`ps -o json` has other fields (declare them in docs/outputs.py" in str(raised.value)


def test_the_map_for_machines_is_as_the_pages_and_commands_make_it() -> None:
    assert generate["llms_text"]() == LLMS, (
        "docs/llms.txt is old. To write it: python docs/generate.py"
    )


def test_the_map_names_every_page_and_every_command() -> None:
    pages = {path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")}
    named = {Path(link).with_suffix(".md") for link in LINKS}
    assert pages - named == {Path("index.md")}
    for words in commands():
        assert f"- [drainer {words}](" in LLMS
    assert LLMS.startswith("# drainer\n\n> ")


def test_no_link_of_the_map_is_dead() -> None:
    copied = runpy.run_path(str(ROOT / "docs/conf.py"))["html_extra_path"]
    at_root = {Path(each).name for each in copied}
    assert "llms.txt" in at_root
    for link in LINKS:
        page = ROOT / "docs" / Path(link).with_suffix(".md")
        assert page.exists() or link in at_root, link
    assert all((ROOT / "docs" / each).exists() for each in copied)
