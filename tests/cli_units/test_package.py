"""Files installed beside the code."""

from __future__ import annotations

import json
import re
import tomllib
from importlib.metadata import metadata
from importlib.resources import files
from pathlib import Path

import drainer
from docs.pages import ROOT
from scenarios.support.page import PAGE, RESULT, page


def test_drainer_is_marked_as_typed() -> None:
    assert (files("drainer") / "py.typed").is_file()
    assert "Typing :: Typed" in (metadata("drainer").get_all("Classifier") or [])


def test_one_module_starts_pythons_and_another_names_one_to_spark() -> None:
    """A Python that is started elsewhere may import from the working folder, and `scenarios.trust`
    can't try a command that it does not know. The module that imports handlers only names this one
    to a person, who is to install a library."""
    package = Path(drainer.__file__).parent
    names = {str(path.relative_to(package)) for path in package.rglob("*.py")}
    starting = {name for name in names if "sys.executable" in (package / name).read_text()}
    names_it = "loading/importing.py"
    assert starting == {"host/process.py", "spark/session/start.py", names_it}


def test_the_page_of_supported_versions_is_what_was_found() -> None:
    assert PAGE.read_text() == page(), "To write it: python -m scenarios.support --page"
    results = json.loads(RESULT.read_text())["results"]
    assert {each["kafka"].partition(".")[0] for each in results} >= {"2", "3", "4"}
    for each in results:
        assert "unavailable" in each or set(each["checks"].values()) == {"passed"}, each


def test_python_versions_that_are_supported_are_those_that_were_tried() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    python = "Programming Language :: Python :: "
    named = {each.removeprefix(python) for each in project["classifiers"] if python in each}
    tried = {each["python"] for each in json.loads(RESULT.read_text())["results"]}

    assert tried == named


def test_each_library_has_a_licence_on_the_page() -> None:
    """``.ci/build && .ci/sbom`` writes the page anew, as ``dist/licences.md``."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    of_all = re.findall(r"\w+", extras["all"][0])[1:]
    wanted = [*project["dependencies"], *(each for extra in of_all for each in extras[extra])]
    names = {re.split(r"[^\w-]", each)[0] for each in wanted} - {"drainer"}
    page = (ROOT / "docs/reference/licences.md").read_text().lower().replace("_", "-")

    assert {name for name in names if f"\n{name} | " not in page} == set()
