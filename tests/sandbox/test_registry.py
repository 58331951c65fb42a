"""A real schema registry beside the sandbox's broker: drained by its schemas, and gone with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from drainer import sandbox
from drainer.errors import SandboxRefused
from drainer.payloads.formats import registry_decoder
from drainer.sandbox import registry as schema_registry
from drainer.split.decoding import Undecodable
from drainer.text.raw_json import meaning
from kafka.topic import Topic
from payloads.registry import AT, Serialisers


def test_an_archive_that_was_not_published_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "archive").write_bytes(b"other")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(schema_registry, "ARCHIVE", (tmp_path / "archive").as_uri())
    with pytest.raises(SandboxRefused, match="SHA-256"):
        schema_registry.launch(tmp_path, True, lambda _: None)


@pytest.mark.long
@pytest.mark.usefixtures("kafka_installed")
def test_records_of_a_real_registry_are_drained(tmp_path: Path) -> None:
    folder = tmp_path / "sandbox"
    state = sandbox.up(folder, registry=True, die_with_parent=True)
    try:
        assert state.registry is not None
        url = state.registry.url
        write = Serialisers(url, "orders")
        order = {"id": "o-1", "at": AT, "to": {"zip": "1010"}}
        note = {"name": "note", "type": "string", "default": ""}
        values = [write.avro(order), write.avro({**order, "note": "late"}, note)]
        number = write.protobuf_text()
        wrote: list[tuple[str, bytes, Any]] = [
            ("json-schema", write.json({"id": 1}), {"id": 1}),
            ("protobuf", write.protobuf({"a": True}), {"fields": {"a": {"bool_value": True}}}),
            ("protobuf", b"\0" + number.to_bytes(4) + b"\2\0\x08\x05", {"x": 5}),
        ]
        for name, data, value in wrote:
            assert meaning(registry_decoder(name, False, url, {})(data, [], "orders")) == value
        with pytest.raises(Undecodable, match="schema 99 is not in the registry"):
            registry_decoder("avro", False, url, {})(b"\0\0\0\0\x63", [], "orders")

        Topic(state.bootstrap_servers, "orders").produce(values)
        words = ["run", "-b", state.bootstrap_servers, "--topic", "orders", "--group", "g"]
        words += ["--from", "earliest", "--handler", "print", "--yes", "--value-format", "avro"]
        words += ["--key", "payload.id", "--registry", url]
        done = subprocess.run(
            [sys.executable, "-m", "drainer", *words],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=True,
        )
        assert done.stdout.count("\to-1\t") == 2
        assert "'note': 'late'" in done.stdout
    finally:
        assert sandbox.down(folder)
    assert not folder.exists()
    assert not state.registry.process.alive()
