"""Objects: whole or not at all, in a folder, in an object store and in HDFS."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from getpass import getuser
from itertools import count
from pathlib import Path
from pwd import getpwuid
from typing import Any, cast

import pytest
from obstore.exceptions import GenericError

from drainer.errors import PlanNotWritten, StateLost, StateRefused, UsageError
from drainer.sandbox.ports import free_port
from drainer.spark.state import webhdfs
from drainer.spark.state.state import open_objects
from drainer.store.bucket import Bucket
from drainer.store.objects import Objects
from privileges import UNPRIVILEGED, for_root
from store.plans import mode_of
from store.stores import bucket, folder, names_in


@pytest.fixture
def unused_port() -> int:
    return free_port()


@pytest.fixture(params=["folder", "store", pytest.param("hdfs", marks=pytest.mark.long)])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    if request.param == "hdfs":
        return open_objects(f"webhdfs://{request.getfixturevalue('hdfs')}{tmp_path}/a state")
    return {"folder": folder, "store": bucket}[request.param](tmp_path)


def test_what_was_put_is_there(objects: Objects) -> None:
    objects.put("a/b/1", b"one")
    objects.put("a/b/1", b"two")
    objects.put("a/c", b"\x00\n")

    assert objects.get("a/b/1") == b"two"
    assert objects.get("a/c") == b"\x00\n"
    assert objects.get("a/b/2") is None
    assert objects.get("nowhere/at/all") is None


def test_of_those_that_create_one_name_one_does(objects: Objects) -> None:
    names, racers = [f"d/{number}" for number in range(50)], [b"a" * 5_000, b"b" * 5_000]
    with ThreadPoolExecutor(len(racers)) as pool:
        first, second = pool.map(lambda data: [objects.create(n, data) for n in names], racers)

    assert [a + b for a, b in zip(first, second, strict=True)] == [1] * len(names)
    assert [objects.get(name) == racers[0] for name in names] == first
    assert names_in(objects) == sorted(names)
    assert objects.create("d/0", racers[0]) == first[0]  # as after a lost answer


def test_names_are_those_below_a_prefix(objects: Objects) -> None:
    for name in ("d/2/x", "d/10/y", "d/control", "dd/z"):
        objects.put(name, b".")

    assert names_in(objects, "d") == ["d/10/y", "d/2/x", "d/control"]
    assert objects.children("d") == ["10", "2", "control"]
    assert names_in(objects) == ["d/10/y", "d/2/x", "d/control", "dd/z"]
    assert names_in(objects, "e") == objects.children("e") == []


def test_what_is_removed_is_gone_with_all_below_it(objects: Objects) -> None:
    for name in ("d/1/x", "d/1/y", "d/control"):
        objects.put(name, b".")
    objects.remove("d/1")
    objects.remove("d/1")
    assert names_in(objects) == ["d/control"]
    objects.remove("d/control")
    objects.remove("d")
    assert names_in(objects) == []


def test_nothing_is_there_by_halves(objects: Objects) -> None:
    """Somebody reads the same object over and over while it is written."""
    objects.put("d/x", b"a" * 100_000)
    torn: list[int] = []
    ended = threading.Event()

    def read() -> None:
        while not ended.is_set():
            data = objects.get("d/x") or b""
            if len(data) != 100_000 or len(set(data)) != 1:
                torn.append(len(data))

    reader = threading.Thread(target=read)
    reader.start()
    for letter in (b"b", b"c") * 50:
        objects.put("d/x", letter * 100_000)
    ended.set()
    reader.join()

    assert torn == []
    assert names_in(objects) == ["d/x"]


def test_a_folder_is_its_owners_alone(tmp_path: Path) -> None:
    folder(tmp_path).put("d/1/x", b".")

    root = tmp_path / "orders.plan.json.state"
    assert [mode_of(path) for path in (root, root / "d", root / "d/1")] == [0o700] * 3
    assert mode_of(root / "d/1/x") == 0o600


def test_opening_makes_nothing(tmp_path: Path) -> None:
    objects = open_objects(str(tmp_path / "x"))
    assert objects.get("d/control") is None
    assert objects.children("d") == []
    assert not (tmp_path / "x").exists()


def test_a_late_record_does_not_bring_a_removed_folder_back(tmp_path: Path) -> None:
    objects = folder(tmp_path)
    objects.put("d/1/begun", b".")
    objects.remove("d")

    with pytest.raises(StateLost, match="not there any more"):
        objects.put("d/1/00000001", b".", beside=True)

    assert names_in(objects) == []
    assert objects.children("") == []


@pytest.mark.long
def test_in_hdfs_a_late_record_does_not_bring_a_removed_folder_back(hdfs: str) -> None:
    objects = open_objects(f"webhdfs://{hdfs}/late")
    objects.put("d/1/begun", b".")
    objects.remove("d")

    with pytest.raises(StateLost, match=r"RENAME of .*FileNotFoundException"):
        objects.put("d/1/00000001", b".", beside=True)

    assert names_in(objects) == []


def test_a_name_node_that_is_not_there_is_named(
    unused_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhdfs, "TIMEOUT_S", 0.5)
    objects = open_objects(f"webhdfs://127.0.0.1:{unused_port}/d")
    with pytest.raises(StateLost, match=f"OPEN of x: 127.0.0.1:{unused_port}: .*refused"):
        objects.get("x")


@pytest.mark.long
def test_of_several_name_nodes_the_one_that_answers_is_asked(hdfs: str, unused_port: int) -> None:
    objects = open_objects(f"webhdfs://127.0.0.1:{unused_port},{hdfs}/several")
    assert objects.create("d/x", b"1")
    assert objects.get("d/x") == b"1"


def all_in(hdfs: str, folder: str) -> bytes:
    """Return the listing of a folder, which shows files with temporary names, too."""
    url = f"http://{hdfs}/webhdfs/v1/{folder}?op=LISTSTATUS&user.name={getuser()}"
    return webhdfs.request("GET", url, None)[1]


@pytest.mark.long
@pytest.mark.parametrize("served", [False, True], ids=["lost", "answer-lost"])
@pytest.mark.parametrize(
    "operation", ["CREATE", "MKDIRS", "RENAME", "OPEN", "LISTSTATUS", "DELETE"]
)
def test_in_hdfs_a_request_without_an_answer_is_made_again(
    hdfs: str, monkeypatch: pytest.MonkeyPatch, operation: str, *, served: bool
) -> None:
    folder, request, made = f"flaky-{operation}-{served}", webhdfs.request, count()

    def flaky(method: str, url: str, body: bytes | None) -> tuple[int, bytes]:
        if f"op={operation}&" in url and next(made) % 2 == 0:
            if served:
                request(method, url, body)
            raise ConnectionResetError("reset by peer")
        return request(method, url, body)

    with monkeypatch.context() as patched:
        patched.setattr(webhdfs, "request", flaky)
        other_name = hdfs.replace("localhost", "127.0.0.1")
        assert other_name != hdfs
        objects = open_objects(f"webhdfs://{hdfs},{other_name}/{folder}")
        objects.put("d/1", b"one")
        objects.put("d/1", b"two")
        assert objects.create("d/2", b"mine")
        assert not objects.create("d/2", b"yours")
        assert (objects.get("d/1"), objects.get("d/2")) == (b"two", b"mine")
        assert objects.get("d/3") is None
        assert objects.children("d") == ["1", "2"]
        objects.remove("d")

    assert next(made) > 0
    assert b"pathSuffix" not in all_in(hdfs, folder)


@pytest.mark.long
def test_in_hdfs_what_a_killed_writer_leaves_goes_with_the_drain_s_state(
    hdfs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects, request = open_objects(f"webhdfs://{hdfs}/killed"), webhdfs.request
    objects.put("d/1", b".")
    objects.put("other/1", b".")

    def killed(method: str, url: str, body: bytes | None) -> tuple[int, bytes]:
        if "op=RENAME" in url or "op=DELETE" in url:
            raise SystemExit
        return request(method, url, body)

    with monkeypatch.context() as patched:
        patched.setattr(webhdfs, "request", killed)
        for name in ("d/2", "other/2"):
            with pytest.raises(SystemExit):
                objects.put(name, b".", beside=True)
    assert all_in(hdfs, "killed").count(b".new") == 2

    objects.remove("d")

    assert b'"pathSuffix":".other.' in all_in(hdfs, "killed")
    assert all_in(hdfs, "killed").count(b".new") == 1


def test_what_is_written_while_a_folder_is_removed_goes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = folder(tmp_path)
    objects.put("d/1/begun", b".")
    remove_folder, late = os.rmdir, ["d/1/00000001"]

    def write_first(path: str, **options: Any) -> None:
        while late:
            objects.put(late.pop(), b".", beside=True)
        remove_folder(path, **options)

    monkeypatch.setattr(os, "rmdir", write_first)
    objects.remove("d")

    assert objects.children("") == []


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = folder(tmp_path)
    objects.put("d/x", b"before")
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda descriptor, data: 0)
        with pytest.raises(PlanNotWritten, match="No space left") as caught:
            objects.put("d/x", b"after")
    assert caught.value.hint
    assert objects.get("d/x") == b"before"
    assert [path.name for path in (Path(objects.uri) / "d").iterdir()] == ["x"]


def test_an_object_store_that_fails_is_reported_in_drainers_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI")

    class Broken:
        def __getattr__(self, name: str) -> object:
            raise GenericError(f"{name}: the key\nwJalrXUtnFEMI is refused\n\nDebug source: …")

    objects = Bucket(cast("Any", Broken()), "s3://bucket/d")
    for call in (
        lambda: objects.get("x"),
        lambda: objects.put("x", b"."),
        lambda: names_in(objects, "x"),
        lambda: objects.children("x"),
        lambda: objects.remove("x"),
    ):
        with pytest.raises(StateLost, match=r"the key \*\*\* is refused$") as caught:
            call()
        assert "wJal" not in str(caught.value)


@pytest.mark.parametrize(
    "uri", ["/srv/state", "file:///srv/state", "file://localhost/srv/state", "file:///srv/sta%74e"]
)
def test_a_path_and_a_file_uri_name_a_folder(uri: str) -> None:
    objects = open_objects(uri)
    assert (objects.is_local, objects.uri) == (True, "/srv/state")


def test_a_path_is_that_of_the_folder_it_was_named_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_objects("state").uri == str(tmp_path / "state")


@pytest.mark.parametrize(
    ("uri", "understood"),
    [
        ("s3a://bucket/d?region=eu-1", "s3://bucket/d?region=eu-1"),
        ("gcs://bucket/d", "gs://bucket/d"),
        ("abfss://c@a.dfs.core.windows.net/d", "abfss://c@a.dfs.core.windows.net/d"),
    ],
)
def test_names_of_stores_are_understood_as_others_write_them(uri: str, understood: str) -> None:
    objects = open_objects(uri)
    assert (objects.is_local, objects.uri) == (False, understood)


@pytest.mark.parametrize(
    ("uri", "error", "hint"),
    [
        ("s3://AKIA:secret@bucket/d", "credentials", "environment"),
        ("s3://AKIA@bucket/d", "credentials", "environment"),
        ("s3a://AKIA:secret@bucket/d", "credentials", "environment"),
        ("s3://bucket/d?secret_key=secret", "credentials", "environment"),
        ("s3://bucket/d?region=x&access_key=secret", "credentials", "environment"),
        ("s3://bucket/d?session-TOKEN=secret", "credentials", "environment"),
        ("abfs://name:secret@account/d", "credentials", "environment"),
        ("", "", ""),
        ("ftp://host/d", "", ""),
        ("https://host/d", "", ""),
        ("file://host/d", "", ""),
        ("hdfs://name:9000/d", "does not speak the protocol of hdfs://", "webhdfs://NODE:9870"),
        ("viewfs://cluster/d", "does not speak the protocol of viewfs://", "webhdfs://NODE:9870"),
        ("webhdfs://ann:secret@name:9870/d", "credentials", "environment"),
        ("webhdfs://name:9870/d?delegation_token=secret", "credentials", "environment"),
        ("s3://bucket/d?no_such_option=1", "can't use", ""),
    ],
)
def test_what_is_no_place_for_a_state_or_has_credentials_is_refused(
    uri: str, error: str, hint: str
) -> None:
    with pytest.raises((UsageError, StateRefused)) as caught:
        open_objects(uri)
    assert error in str(caught.value)
    assert not {"secret", "AKIA"} & {*re.findall(r"\w+", str(caught.value))}
    assert caught.value.hint
    assert hint in caught.value.hint


OTHER = f"belongs to {getpwuid(UNPRIVILEGED).pw_name}"


@for_root
@pytest.mark.parametrize("theirs", ["drain", "drain/2/x"])
def test_what_others_made_in_a_sticky_folder_is_refused(tmp_path: Path, theirs: str) -> None:
    """Others could have been faster, and write that all is finished."""
    shared = tmp_path / "state"
    shared.mkdir()
    shared.chmod(0o1777)
    objects = open_objects(str(shared))
    objects.put("drain/2/x", b"1")
    os.chown(shared / theirs, UNPRIVILEGED, UNPRIVILEGED)

    calls: list[Callable[[], object]] = [lambda: objects.get("drain/2/x")]
    if theirs != "drain/2/x":
        calls += [lambda: objects.children("drain/2"), lambda: objects.put("drain/2/y", b"")]
    for call in calls:
        with pytest.raises(StateRefused, match=OTHER):
            call()
