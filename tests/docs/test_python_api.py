"""The page of the Python API: it has every name that is exported, and its examples work."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import drainer
import drainer.spark
from docs.pages import ROOT
from kafka.topic import Topic

PAGE = (ROOT / "docs/reference/python.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
HANDLERS = (
    "import drainer\n\nclass Reindex(drainer.Handler):\n    def handle(self, sub):\n        pass\n"
)


def test_the_exported_names_are_on_the_page() -> None:
    assert {name for name in drainer.__all__ if name in vars(drainer) or getattr(drainer, name)}
    missing = {name for name in drainer.__all__ if f"drainer.{name}" not in PAGE}
    assert missing == {"Barrier", "OnFailure", "Origin", "__version__"}  # on the handler's page


def test_the_names_of_spark_are_on_the_page() -> None:
    missing = {name for name in drainer.spark.__all__ if f":: drainer.spark.{name}" not in PAGE}
    assert missing == {"DrainerSource"}  # on the page of the data source


@pytest.mark.parametrize("name", ["drain", "resume", "inspect", "estimate", "lag"])
def test_the_table_has_the_arguments_of_each_function(name: str) -> None:
    rows = re.findall(r"^(`.*?) \| (.*?) \| ", PAGE, re.MULTILINE)
    listed = [each for names, of in rows if name in of.split(", ") for each in names.split(", ")]
    arguments = inspect.signature(getattr(drainer, name)).parameters
    assert sorted(each.strip("`") for each in listed) == sorted(arguments)


@pytest.fixture
def folder(
    bootstrap: str, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    topic = Topic(bootstrap, topic_name)
    topic.produce(["1", "2", "3"])
    (tmp_path / "my_handlers.py").write_text(HANDLERS)
    (tmp_path / "client.properties").write_text(f"bootstrap.servers={bootstrap}\n")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    topic.discard()


def test_the_examples_work_as_they_are_printed(
    folder: Path, bootstrap: str, topic_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    drained, stopped, looked = (
        code.replace("localhost:9092", bootstrap)
        .replace('"orders"', f'"{topic_name}"')
        .replace('"indexer"', f'"g-{topic_name}"')
        for code in EXAMPLES
    )
    begins = 'handler="my_handlers.py:Reindex",'
    names: dict[str, object] = {}
    exec(drained.replace(begins, f'{begins} from_="earliest",'), names)
    assert "✓ Drained: 3 messages, 3 sub-messages\n" in capsys.readouterr().out
    exec(looked, names)
    numbers, shown = capsys.readouterr().out.splitlines()
    assert numbers == "0 0.0"
    assert shown.endswith(": nothing to drain: the backlog is empty")
    exec(stopped, names)
    assert capsys.readouterr().out == ""
