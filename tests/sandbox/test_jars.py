"""Java is found or missed in words, and Kafka's jars are fetched whole, once, or not at all."""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from drainer.errors import SandboxRefused
from drainer.host.java import find_java
from drainer.sandbox import jars
from drainer.sandbox.jars import KAFKA_VERSION, classpath, kafka_jars

FakeJava = Callable[[str], None]

# $jars is the folder where Ivy puts the jars.
_ARGUMENTS = """
while [ "$1" != -retrieve ]; do shift; done
jars="${2%/*}"
"""
_GOOD_FETCH = f'echo jar > "$jars/kafka_2.13-{KAFKA_VERSION}.jar"\necho jar > "$jars/other-1.jar"\n'
_JAR = hashlib.sha256(b"jar\n").hexdigest()


@pytest.fixture
def no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with nothing on it; returns its folder."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.fixture
def fake_java(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> FakeJava:
    """Put a script on PATH that calls itself Java 17 and does this instead of running Ivy.

    Two jars are published.
    """

    hashes = no_java / "published.sha256"
    hashes.write_text(f"{_JAR}  kafka_2.13-{KAFKA_VERSION}.jar\n{_JAR}  other-1.jar\n")
    monkeypatch.setattr(jars, "HASHES", hashes)

    def install(body: str) -> None:
        version = 'if [ "$1" = -version ]; then echo \'openjdk version "17.0.1"\' >&2; exit 0; fi'
        script = no_java / "java"
        script.write_text(f"#!/bin/sh\n{version}\n{_ARGUMENTS}\n{body}")
        script.chmod(0o755)

    return install


def _leftovers(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.parent.iterdir() if path.is_dir())


def test_a_pyspark_without_jars_is_refused(
    fake_java: FakeJava, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java("")
    monkeypatch.setattr(jars, "pyspark_jars", lambda: tmp_path)
    with pytest.raises(SandboxRefused, match="no Ivy"):
        kafka_jars(cache=tmp_path / "kafka")


def test_an_old_java_is_refused_by_its_release(no_java: Path) -> None:
    script = no_java / "java"
    script.write_text('#!/bin/sh\necho openjdk version \\"1.8.0_402\\" >&2\n')
    script.chmod(0o755)
    with pytest.raises(SandboxRefused, match=r"is Java 8$"):
        find_java()


@pytest.mark.usefixtures("kafka_installed")
def test_the_classpath_holds_one_logging_system_with_its_binding() -> None:
    names = [Path(jar).name for jar in classpath(kafka_jars()).split(os.pathsep)]
    for wanted in ("slf4j-api", "log4j-slf4j2-impl", "log4j-api", "log4j-core", "kafka_2.13"):
        assert sum(name.startswith(f"{wanted}-") for name in names) == 1, wanted


def test_a_fetch_makes_a_cache_that_the_next_call_finds(
    fake_java: FakeJava, no_java: Path, tmp_path: Path
) -> None:
    fake_java(_GOOD_FETCH)
    cache = tmp_path / "new" / "kafka"
    (cache.parent / "kafka.part-dead" / "jars").mkdir(parents=True)  # of a fetch that was killed
    output: list[str] = []
    fetched = kafka_jars(cache=cache, print_line=output.append)
    assert [jar.name for jar in fetched] == [f"kafka_2.13-{KAFKA_VERSION}.jar", "other-1.jar"]
    assert output[-1] == f"fetched Kafka {KAFKA_VERSION}: 2 jars"
    assert _leftovers(cache) == ["kafka"]
    (no_java / "java").unlink()
    assert kafka_jars(cache=cache) == fetched


def test_a_fetch_that_fails_leaves_no_half_cache_and_names_what_is_missing(
    fake_java: FakeJava, tmp_path: Path
) -> None:
    fake_java(
        _GOOD_FETCH + "echo '\t\t:: org.x#y;1.0: not found'\n"
        "echo '\tServer access error at url some-url (java.net.ConnectException: refused)'\n"
        "exit 1\n"
    )
    cache = tmp_path / "new" / "kafka"
    with pytest.raises(SandboxRefused) as refused:
        kafka_jars(cache=cache)
    assert _leftovers(cache) == []
    assert "org.x#y;1.0: not found; Server access error" in str(refused.value)
    assert "java.net.ConnectException: refused" in str(refused.value)
    assert "network" in (refused.value.hint or "")
    named = re.search(r"Ivy's output is in (\S+)", str(refused.value))
    assert named is not None
    assert "Server access error" in Path(named[1]).read_text()


def test_a_fetched_jar_that_is_not_the_published_one_is_refused_and_not_kept(
    fake_java: FakeJava, tmp_path: Path
) -> None:
    fake_java(_GOOD_FETCH + 'echo evil > "$jars/other-1.jar"\n')
    cache = tmp_path / "new" / "kafka"
    with pytest.raises(
        SandboxRefused, match=rf"other-1\.jar has the SHA-256 \w+ instead of {_JAR}"
    ):
        kafka_jars(cache=cache)
    assert _leftovers(cache) == []


def test_a_jar_that_was_changed_since_is_refused_and_left_where_it_is(
    fake_java: FakeJava, tmp_path: Path
) -> None:
    fake_java(_GOOD_FETCH)
    cache = tmp_path / "new" / "kafka"
    _, other = kafka_jars(cache=cache)
    other.write_text("evil\n")
    (cache / "mine.txt").write_text("kept")
    with pytest.raises(SandboxRefused, match=r"other-1\.jar") as refused:
        kafka_jars(cache=cache)
    assert "remove the folder" in (refused.value.hint or "")
    assert (other.read_text(), (cache / "mine.txt").read_text()) == ("evil\n", "kept")


def test_two_at_once_fetch_once(fake_java: FakeJava, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    fake_java(f"echo run >> '{runs}'\n/bin/sleep 0.3\n{_GOOD_FETCH}")
    cache = tmp_path / "new" / "kafka"
    together = threading.Barrier(2)

    def fetch() -> tuple[Path, ...]:
        together.wait()
        return kafka_jars(cache=cache)

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.submit(fetch), pool.submit(fetch)
        assert first.result() == second.result()
    assert runs.read_text().split() == ["run"]


def test_a_cache_that_cannot_be_written_is_refused_with_its_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(SandboxRefused, match="can't keep Kafka's jars"):
        kafka_jars(cache=tmp_path / "file" / "below" / "kafka")
