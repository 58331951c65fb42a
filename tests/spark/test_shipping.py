"""Loading a handler on an executor. An error names what the executor lacks, and the remedy."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drainer.errors import Refused
from drainer.loading.loader import load_handler
from drainer.message import Message, Origin
from drainer.model.terms import PayloadSettings
from drainer.spark.session.shipping import Shipped, ship
from payloads.registry import AT, Serialisers, running

ORIGIN = Origin("orders", "id", 0)


def test_an_executor_with_another_version_of_drainer_is_refused() -> None:
    shipped = replace(Shipped("print"), version="0.0.9")

    with pytest.raises(Refused, match=r"runs drainer \d.*, but the driver runs 0\.0\.9"):
        shipped.load()


@pytest.mark.parametrize("reference", ["absent_package.handlers:H", "{folder}/needs.py:H"])
def test_the_hint_for_a_missing_module_is_how_it_gets_to_the_executor(
    reference: str, tmp_path: Path
) -> None:
    (tmp_path / "needs.py").write_text("import absent_package\n")

    with pytest.raises(Refused, match=r"the executor on .*absent_package") as raised:
        Shipped(reference.format(folder=tmp_path)).load()
    assert "pyFiles" in (raised.value.hint or "")
    assert "--py-files" in (raised.value.hint or "")


def test_a_handler_that_fails_for_another_reason_has_another_hint(tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text("1 / 0\n")

    with pytest.raises(Refused, match="ZeroDivisionError") as raised:
        Shipped(f"{tmp_path}/fails.py:H").load()
    assert "pyFiles" not in (raised.value.hint or "")


def test_a_task_decodes_by_the_schemas_that_the_driver_has_got() -> None:
    with running() as registry:
        value = Serialisers(registry.url, "orders").avro({"id": "o-1", "at": AT, "to": None})
        payloads = PayloadSettings(value_format="avro", registry=registry.url)
        handler = load_handler("count", payloads)
        assert handler.decoding is not None
        assert handler.decoding.decoded(Message(ORIGIN, 0, None, value))
    shipped = Shipped("count", payloads=payloads, schemas=handler.decoding.known_schemas)
    # The process that decodes can't reach the registry, which is gone.
    code = (
        "import pickle, sys; shipped, value = pickle.load(sys.stdin.buffer)\n"
        "print(shipped.load().decoding.of_value(value, (), 'orders')['id'])"
    )
    given = pickle.dumps((shipped, value))
    done = subprocess.run(
        [sys.executable, "-c", code], input=given, capture_output=True, check=True
    )
    assert done.stdout == b"o-1\n"


def test_a_task_splits_as_the_driver_does() -> None:
    handler = Shipped("count", payloads=PayloadSettings("documents", ("payload.id",))).load()
    assert handler.split is not None
    message = Message(ORIGIN, 0, None, b'{"documents": [{"id": 7}]}')
    assert [sub.key for sub in handler.split(message)] == ["7"]


class _Cluster:
    """Stands in for a session whose executors are on other machines."""

    master = "spark://other:7077"

    def __init__(self) -> None:
        self.owner, self.sent = self, list[str]()

    def add_file(self, path: str) -> None:
        self.sent.append(path)

    add_module = add_file


def test_code_is_sent_once_and_the_settings_of_each_call_come_along(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole/__init__.py").write_text("def handle(sub): ...")
    (tmp_path / "file.py").write_text("def handle(sub): ...")
    session: Any = _Cluster()
    for reference in (f"{tmp_path}/whole", f"{tmp_path}/file.py"):
        for split in ("items", "lines"):
            payloads = PayloadSettings(split, ("payload.id",))

            shipped = ship(session, load_handler(reference, payloads))

            assert shipped.payloads == payloads
    assert len(session.sent) == 2
