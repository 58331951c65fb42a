"""Files installed beside the code."""

from __future__ import annotations

from importlib.metadata import metadata
from importlib.resources import files


def test_drainer_is_marked_as_typed() -> None:
    assert (files("drainer") / "py.typed").is_file()
    assert "Typing :: Typed" in (metadata("drainer").get_all("Classifier") or [])
