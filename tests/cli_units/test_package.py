"""Files installed beside the code."""

from __future__ import annotations

from importlib.metadata import metadata
from importlib.resources import files
from pathlib import Path

import drainer


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
