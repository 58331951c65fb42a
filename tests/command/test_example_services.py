"""The example services of docs/examples: drains through them, one of which is killed meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from command.process import Command
from docs.pages import ROOT
from docs.reader import is_open
from drainer.host.java import find_java
from drainer.http.protocol import encode_item
from drainer.message import SubMessage
from drainer.sandbox.jars import kafka_jars
from drainer.sandbox.ports import free_port
from drainer.testing import message
from golang import compiler
from kafka.topic import eventually

pytestmark = pytest.mark.long
EXAMPLES = ROOT / "docs/examples"
OPENAPI = ROOT / "docs/reference/http.openapi.json"
MESSAGES, DOCUMENTS, KEYS = 300, 5, 40
STARTS_WITHIN_S = 120.0
# What a person installs for it in a folder of its own: Node, and a reader of OpenAPI.
NODE, VALIDATOR = "playwright>=1.50", "jsonschema>=4.23"


def installed(package: str, folder: Path) -> Path:
    """A package of PyPI in a folder. Skips the test if it can't be had."""
    words = ["install", "-q", "--disable-pip-version-check", "--target", str(folder), package]
    ended = subprocess.run([sys.executable, "-m", "pip", *words], check=False)
    if ended.returncode:
        pytest.skip(f"{package} is not here, and pip can't install it")
    return folder


@pytest.fixture(params=["service.go", "Service.java", "service.ts"])
def words(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """The command that starts a service. Skips the test if what it needs can't be had."""
    source = EXAMPLES / request.param
    if source.suffix == ".ts":
        node = installed(NODE, tmp_path / "node") / "playwright/driver/node"
        return [str(node), str(source)]  # Node removes types by itself
    if source.suffix == ".java":
        jars = [str(jar) for jar in kafka_jars() if jar.name.startswith("jackson-")]
        return [str(find_java()), "-cp", os.pathsep.join(jars), str(source)]
    subprocess.run([compiler(), "build", "-o", "service", source], cwd=tmp_path, check=True)
    return [str(tmp_path / "service")]


@contextmanager
def serving(words: list[str], port: int, index: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a service, from when it answers; it is killed with the block, or in it."""
    env = {**os.environ, "PORT": str(port), "INDEX": str(index)}
    with subprocess.Popen(words, env=env) as process:
        try:
            eventually(lambda: is_open(port), "the service answers", STARTS_WITHIN_S)
            yield process
        finally:
            process.kill()


def bundle(number: int) -> str:
    """A message of some documents, of which a few are locked at first, or have no title."""
    places = range(number * DOCUMENTS, (number + 1) * DOCUMENTS)
    documents: list[dict[str, Any]] = [
        {"id": f"k{n % KEYS}", "title": f"no. {n}", "locked": n % 97 == 0} for n in places
    ]
    if number % 100 == 50:
        documents[0].pop("title")
    return json.dumps({"documents": documents})


def done(index: Path) -> list[tuple[str, str]]:
    """The ids and keys that a service wrote, in their order."""
    lines = index.read_text().splitlines() if index.exists() else []
    return [(id, key) for id, _, key in (line.partition(" ") for line in lines)]


@pytest.mark.parametrize("batch", [1, 20], ids=["single", "batch"])
def test_a_drain_ends_though_its_service_is_killed_amid_it(
    command: Command, words: list[str], tmp_path: Path, batch: int
) -> None:
    topic, index = command.topic([*map(bundle, range(MESSAGES))]), tmp_path / "index"
    port = free_port()
    what = [*command.what(topic, "http"), "--from", "earliest", "--yes", "-o", "json"]
    what += ["--split", "documents", "--key", "payload.id", "-c", "8", "--rate", "300/s"]
    what += ["--set", f"url=http://127.0.0.1:{port}/drain", "--on-failure", "dead-letter"]
    what += ["--set", f"batch={batch}"] if batch > 1 else []
    with serving(words, port, index) as killed:
        running = command.start("run", *what)
        eventually(lambda: len(done(index)) > 200 or not running.running, "some are done", 60)
        killed.kill()
        killed.wait()
    assert running.running
    with serving(words, port, index):
        counts = running.ends(6).answer["sub_messages"]

    of_all = MESSAGES * DOCUMENTS
    assert (counts["done"], counts["dead"]) == (of_all - 3, 3)
    found = done(index)
    assert len(Counter(id for id, _ in found)) == of_all - 3
    assert len(found) < of_all + 8 * batch, "only what was in flight is handled again"
    for key in {key for _, key in found}:
        places = [tuple(map(int, id.split(":")[2:])) for id, each in found if each == key]
        assert sum(later <= earlier for earlier, later in pairwise(places)) <= 1, key


def test_answers_are_as_the_openapi_document_has_them(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(installed(VALIDATOR, tmp_path / "validator"))
    from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # noqa: PLC0415

    document = json.loads(OPENAPI.read_text())
    Draft202012Validator.check_schema(document["components"])

    def check(name: str, found: Any) -> Any:
        schema = {"$ref": f"#/components/schemas/{name}", **document}
        Draft202012Validator(schema).validate(found)
        return found

    def call(name: str, body: bytes) -> tuple[int, Any]:
        check(name, json.loads(body))
        headers = {"Content-Type": "application/json"}
        url = f"http://127.0.0.1:{port}/drain"
        with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text else None

    payloads = [{"title": "one"}, {"title": "two", "locked": True}, {}, None]
    items = list[bytes]()
    for number, payload in enumerate(payloads):
        sub = SubMessage(f"k{number}", payload)
        sub.message, sub.index, sub.attempt = message(b"value"), number, 1
        items.append(encode_item(sub))
    expected = ["done", "retry", "give-up", "give-up"]
    port = free_port()
    with serving(words, port, tmp_path / "index"):
        _, answer = call("Call", b'{"batch":[%b]}' % b",".join(items))
        results = check("Answer", answer)["results"]
        assert [each["result"] for each in results] == expected
        assert [each["id"] for each in results] == [json.loads(each)["id"] for each in items]
        for item, result in zip(items, expected, strict=True):
            status, answer = call("CallItem", item)
            assert status == 204 or check("SingleAnswer", answer)["result"] == result
