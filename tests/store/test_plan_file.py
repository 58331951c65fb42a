"""The plan on disk: whole or not at all, private, and locked by one process."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from builders import changed
from drainer.core.merge import Record
from drainer.errors import PlanGone, PlanNotWritten, PlanRefused, PlanUnready
from drainer.host.trust import read_own
from drainer.model.plan import OffsetPlan
from drainer.store import atomic_file, plan_file
from drainer.store.place import default_path
from drainer.store.plan_file import PlanFile, plan_at
from privileges import without_privileges
from store.plans import PLAN, mode_of, progress, with_progress

LATER = changed(with_progress(PLAN, p0=progress(160)), generation=8)
CHANGES = {0: progress(121)}


@pytest.fixture
def file(tmp_path: Path) -> PlanFile:
    plan_file = PlanFile(tmp_path / "orders.plan.json")
    plan_file.write(PLAN)
    return plan_file


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def begun(file: PlanFile) -> PlanFile:
    """Give a plan a journal that has a record."""
    file.start_journal(PLAN.terms.drain_id, PLAN.account.generation)
    file.append(Record(CHANGES))
    return file


# Written whole or not at all.


class Killed(BaseException):
    """The process is gone at this call."""


@contextmanager
def trouble(at: int, kept: int, *, kills: bool) -> Iterator[None]:
    """At the call of this number something happens to what is written to the disk.

    Either this call fails, or the process is killed there: no later one is made then. A write has
    written ``kept`` bytes by then.
    """
    number = count()

    def wrapped(real: Callable[..., Any], *, writes: bool = False) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            now = next(number)
            if now < at or (now > at and not kills):
                return real(*args, **named)
            if now == at and writes:
                real(args[0], args[1][:kept])
            if kills:
                raise Killed
            raise OSError(28, "No space left on device")

        return call

    with (
        patch.object(os, "write", wrapped(os.write, writes=True)),
        patch.object(os, "open", wrapped(os.open)),
        patch.object(os, "fsync", wrapped(os.fsync)),
        patch.object(os, "replace", wrapped(os.replace)),
        patch.object(os, "unlink", wrapped(os.unlink)),
    ):
        yield


def content_of(plan: OffsetPlan) -> object:
    return plan.account.claims, plan.account.parked


@patch.object(os, "fsync", lambda descriptor: None)  # no loss of power here, and it takes long
@given(
    steps=st.lists(st.sampled_from(["append", "append", "save"]), min_size=1, max_size=12),
    at=st.integers(0, 60),
    kept=st.integers(0, 400),
    kills=st.booleans(),
)
@settings(
    max_examples=settings().max_examples,
    print_blob=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@example(steps=["append", "save", "append"], at=4, kept=0, kills=False)
def test_whatever_happens_to_the_disk_or_the_process_the_plan_is_what_it_was_at_one_moment(
    steps: list[str], at: int, kept: int, kills: bool, tmp_path: Path
) -> None:
    """Nothing is lost that was written before: what is appended is there at once."""
    folder = tmp_path / "plans"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    file = PlanFile(folder / "orders.plan.json")
    file.write(PLAN)
    file.start_journal(PLAN.terms.drain_id, PLAN.account.generation)
    moments, generation, safe, failed = [PLAN], PLAN.account.generation, 0, False
    try:
        with trouble(at, kept, kills=kills):
            for number, step in enumerate(steps):
                try:
                    if step == "append":
                        changes, lanes = {0: progress(121 + number)}, [f"'{number}'"]
                        moments.append(
                            OffsetPlan(PLAN.terms, moments[-1].account.merge(changes, lanes))
                        )
                        file.append(Record(changes, tuple(lanes)))
                    else:  # as a checkpointer does
                        generation += 1
                        file.start_journal(PLAN.terms.drain_id, generation)
                        file.write(changed(moments[-1], generation=generation))
                        failed = False
                except PlanNotWritten as error:
                    failed = "resume" in (error.hint or "")
                safe = safe if failed else len(moments) - 1
    except Killed:
        pass

    file = PlanFile(file.path)  # of another process
    loaded = file.load()
    assert content_of(loaded.plan) in list(map(content_of, moments[safe:]))
    file.write(changed(loaded.plan, generation=loaded.last_generation + 1))
    assert names(folder) == ["orders.plan.json"]
    assert content_of(file.load().plan) == content_of(loaded.plan)


def test_plan_journal_and_lock_are_their_owners_alone_whatever_lay_there(tmp_path: Path) -> None:
    journal = tmp_path / "orders.plan.json.journal-7"
    for path in (tmp_path / "orders.plan.json", journal):
        path.write_bytes(b"")
        path.chmod(0o666)
    before = os.umask(0)
    try:
        file = PlanFile(tmp_path / "orders.plan.json")
        file.acquire()
        file.write(PLAN)
        begun(file)
        modes = {path.name: mode_of(path) for path in tmp_path.iterdir()}
        file.release()
        file.release()
    finally:
        os.umask(before)

    assert modes == {
        "orders.plan.json": 0o600,
        "orders.plan.json.journal-7": 0o600,
        ".orders.plan.json.lock": 0o600,
    }
    assert ".orders.plan.json.lock" not in names(tmp_path)


def test_a_link_in_the_way_is_not_followed(file: PlanFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder like /tmp somebody else may have put it there, to have a file written over."""
    precious = file.path.with_name("precious")
    precious.write_text("mine")
    monkeypatch.setattr(atomic_file, "token_hex", lambda size: "known")
    new = f"{atomic_file.prefix_of_new(file.path)}known.new"
    file.path.with_name(new).symlink_to(precious)
    with pytest.raises(PlanNotWritten, match="File exists"):
        file.write(LATER)
    journal = file.path.with_name("orders.plan.json.journal-8")
    journal.symlink_to(precious)
    file.start_journal(PLAN.terms.drain_id, 8)
    file.append(Record(CHANGES))
    file.release()

    assert precious.read_text() == "mine"
    assert not journal.is_symlink()
    assert mode_of(journal) == 0o600


def test_a_link_to_a_plan_is_that_plan_with_its_journal_and_lock(file: PlanFile) -> None:
    begun(file)
    link = file.path.parent / "elsewhere" / "mine.plan.json"
    link.parent.mkdir()
    link.symlink_to(file.path)
    linked = plan_at(link)
    assert linked.load() == file.load()
    assert linked.load().records == 1
    file.acquire()
    with pytest.raises(PlanUnready, match="another drainer process uses"):
        linked.acquire()
    file.release()
    linked.write(LATER)
    assert file.load().written == LATER
    assert link.is_symlink()


def test_a_link_to_a_pipe_of_a_shell_is_no_plan(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    link = tmp_path / "stdin"
    link.symlink_to(f"/proc/self/fd/{reading}")
    with pytest.raises(PlanRefused, match="not a regular file") as refused:
        plan_at(link).load()
    assert refused.value.hint
    os.close(reading)
    os.close(writing)


def test_the_plan_is_synced_before_it_takes_its_name(
    file: PlanFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a loss of power could leave the name with nothing behind it."""
    events: list[str] = []
    sync, rename = os.fsync, os.replace

    def note_sync(descriptor: int) -> None:
        target = Path(f"/proc/self/fd/{descriptor}").readlink()
        events.append(f"sync {target.name}")
        sync(descriptor)

    def note_replace(source: Path, target: Path) -> None:
        events.append(f"replace {target.name}")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "replace", note_replace)
    file.write(LATER)

    first = events.pop(0)
    assert re.fullmatch(r"sync \.drainer-[0-9a-f]{8}-[0-9a-f]{16}\.new", first)
    assert events == ["replace orders.plan.json", f"sync {file.path.parent.name}"]


def first_sync_waits(
    monkeypatch: pytest.MonkeyPatch, of: Callable[[int], bool]
) -> tuple[threading.Event, threading.Event]:
    """Let the first sync ``of`` such a file mode set one event, and wait for the other."""
    sync, is_syncing, released = os.fsync, threading.Event(), threading.Event()

    def slow_sync(descriptor: int) -> None:
        if of(os.fstat(descriptor).st_mode) and not is_syncing.is_set():
            is_syncing.set()
            released.wait(10)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", slow_sync)
    return is_syncing, released


def test_a_write_that_outlasts_the_release_of_the_plan_overwrites_no_later_one(
    file: PlanFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second Ctrl-C comes while the disk is slow, then a resume in the same process."""
    is_syncing, released = first_sync_waits(monkeypatch, lambda mode: True)
    file.acquire()
    with ThreadPoolExecutor() as threads:
        late = threads.submit(file.write, PLAN)
        assert is_syncing.wait(10)
        file.release()
        file.acquire()
        file.write(LATER)
        released.set()
        with pytest.raises(PlanNotWritten):
            late.result()
    assert file.load().written == LATER
    file.release()
    assert names(file.path.parent) == [file.path.name]


def test_a_write_that_outlasts_the_release_of_the_plan_removes_no_later_journal(
    file: PlanFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan is in its place, and its folder is slow to sync."""
    is_syncing, released = first_sync_waits(monkeypatch, stat.S_ISDIR)
    file.acquire()
    with ThreadPoolExecutor() as threads:
        late = threads.submit(file.write, changed(PLAN, generation=50))
        assert is_syncing.wait(10)
        file.release()
        file.acquire()
        file.write(PLAN)
        file.start_journal(PLAN.terms.drain_id, PLAN.account.generation)
        before = names(file.path.parent)
        released.set()
        late.result()
    assert names(file.path.parent) == before
    file.release()


def test_a_journal_that_can_not_be_begun_leaves_no_file_open_and_is_no_bug_of_who_appends(
    file: PlanFile,
) -> None:
    with pytest.raises(RuntimeError):
        file.append(Record(CHANGES))
    before = len(names(Path("/proc/self/fd")))
    for at in (0, 1, 2):
        with trouble(at, 0, kills=False), pytest.raises(PlanNotWritten):
            file.start_journal(PLAN.terms.drain_id, PLAN.account.generation)
        with pytest.raises(PlanNotWritten, match="No space"):
            file.append(Record(CHANGES))
    file.release()

    assert len(names(Path("/proc/self/fd"))) == before


def test_a_plan_whose_folder_is_gone_is_not_called_valid(tmp_path: Path) -> None:
    folder = tmp_path / "plans"
    folder.mkdir()
    file = PlanFile(folder / "orders.plan.json")
    file.write(PLAN)
    file.start_journal(PLAN.terms.drain_id, PLAN.account.generation)
    folder.rename(tmp_path / "moved")
    writes: list[Callable[[], None]] = [
        lambda: file.start_journal(PLAN.terms.drain_id, LATER.account.generation),
        lambda: file.write(LATER),
    ]
    for write in writes:
        with pytest.raises(PlanGone, match="was removed or moved") as caught:
            write()
        assert "start again" in (caught.value.hint or "")
        assert "valid" not in (caught.value.hint or "")
    file.release()


# Refused before anything is touched.


def refused(path: Path) -> PlanRefused:
    with pytest.raises(PlanRefused) as caught:
        PlanFile(path).acquire()
    assert caught.value.exit_code == 3
    assert caught.value.hint
    return caught.value


def test_a_folder_that_can_not_be_written_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "orders.plan.json", Path("/proc/orders.plan.json")):
        refused(path)
    with tempfile.TemporaryDirectory() as name:  # that others can reach, unlike pytest's own
        folder = Path(name)
        plan = PlanFile(folder / "orders.plan.json")
        plan.write(PLAN)
        plan.path.chmod(0o000)
        folder.chmod(0o555)
        with without_privileges():
            error = refused(plan.path)
            with pytest.raises(PlanRefused, match=r"can't read the plan .*: Permission denied"):
                plan.load()
        assert "Permission denied" in str(error)
        assert str(folder) in str(error)
        assert names(folder) == ["orders.plan.json"]


def test_a_missing_plan_is_refused_with_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(PlanRefused, match=r"the plan .* does not exist") as caught:
        PlanFile(tmp_path / "orders.plan.json").load()

    assert "drainer run" in (caught.value.hint or "")


def test_a_damaged_plan_is_refused_by_its_path(file: PlanFile) -> None:
    for content in (b"", b"{}", b"nonsense", PLAN.encode()[:-20]):
        file.path.write_bytes(content)
        with pytest.raises(PlanRefused, match=f"{file.path}: the plan is damaged") as caught:
            file.load()
        assert caught.value.hint
    with pytest.raises(PlanRefused, match="can't read the plan"):
        PlanFile(file.path.parent).load()


def test_an_older_plan_beside_a_newer_journal_is_refused(file: PlanFile) -> None:
    """A copy that is put back: its journals went when newer plans took them in."""
    older = file.path.read_bytes()
    for generation in range(PLAN.account.generation, PLAN.account.generation + 3):
        file.start_journal(PLAN.terms.drain_id, generation)
        file.write(with_progress(changed(PLAN, generation=generation), p0=progress(130)))
        file.append(Record({0: progress(131)}))
    assert file.load().plan.account.watermark(0) == 131
    file.path.write_bytes(older)

    with pytest.raises(PlanRefused, match="is older than its journal") as caught:
        file.load()

    assert "Put the newer plan back" in (caught.value.hint or "")


# Locked by one process.

LOCK = """
import sys
from pathlib import Path
from drainer.store.plan_file import PlanFile
file = PlanFile(Path(sys.argv[1]))
file.acquire()
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_plan_is_locked_by_one_process_until_it_is_released_or_killed(
    file: PlanFile, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [sys.executable, "-c", LOCK, str(file.path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "locked\n"
        assert "another drainer process uses" in str(refused(file.path))
        theirs = PlanFile(file.path).owner
        owner.kill()

    PlanFile(file.path).ensure_free()
    file.acquire()
    assert file.owner == theirs, "the lock of a dead process is taken over at once"
    copy = PlanFile(tmp_path_factory.mktemp("copy") / file.path.name)
    copy.acquire()
    assert copy.owner != file.owner
    copy.release()
    monkeypatch.setattr(plan_file, "this_machine", lambda: "another container of this host name")
    assert file.owner != theirs
    file.release()
    PlanFile(file.path).acquire()


# What becomes of it.


def test_a_plan_that_no_other_touched_is_unchanged(file: PlanFile) -> None:
    begun(file).ensure_unchanged(file.load())
    file.release()
    PlanFile(file.path.with_name("other.plan.json")).ensure_unchanged(None)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda file: file.write(LATER), "has changed"),
        (lambda file: file.append(Record({0: progress(122)})), "has changed"),
        (lambda file: file.path.unlink(), "is gone"),
    ],
    ids=["plan", "journal", "gone"],
)
def test_a_plan_that_changed_since_it_was_looked_at_is_refused(
    change: Callable[[PlanFile], object], error: str, file: PlanFile
) -> None:
    file.start_journal(PLAN.terms.drain_id, PLAN.account.generation)
    with pytest.raises(PlanUnready, match="has appeared"):
        file.ensure_unchanged(None)
    seen = file.load()
    change(file)

    with pytest.raises(PlanUnready, match=error) as caught:
        file.ensure_unchanged(seen)

    assert caught.value.hint
    file.release()


def test_the_plan_of_a_drain_that_handled_nothing_is_taken_back(file: PlanFile) -> None:
    file.acquire()
    aside = file.archive(PLAN)
    file.write(LATER)
    file.start_journal(LATER.terms.drain_id, LATER.account.generation)
    file.rollback(LATER, aside)
    file.release()
    assert names(file.path.parent) == ["orders.plan.json"]
    assert file.load().plan == PLAN

    file = begun(PlanFile(file.path))
    file.rollback(PLAN, None)
    file.release()
    assert file.load().plan == OffsetPlan(PLAN.terms, PLAN.account.merge(CHANGES)), (
        "it has progress"
    )

    file.remove_journals()
    file.rollback(PLAN, None)
    assert names(file.path.parent) == []


def test_a_finished_plan_is_set_aside_with_its_journal_folded_in(file: PlanFile) -> None:
    """The drain died between its last journal line and its last save."""
    begun(file).release()
    known = file.load().plan
    assert known != PLAN

    for at in range(4):  # a full disk, or a folder that takes no new name
        with trouble(at, 0, kills=False), pytest.raises(PlanUnready, match="No space") as caught:
            file.archive(known)
        assert "--plan" in (caught.value.hint or "")
        assert file.load().plan == known
    no = PermissionError(13, "Permission denied")
    with patch.object(Path, "rename", side_effect=no), pytest.raises(PlanRefused, match="denied"):
        file.archive(known)
    aside = file.archive(known)

    assert names(file.path.parent) == [aside.name] == [f"orders.plan.{PLAN.terms.drain_id}.json"]
    assert PlanFile(aside).load().written == known


def test_a_plan_that_a_drain_saves_while_it_is_read_is_read_again(
    file: PlanFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the plan and its journals, which it folds in and begins anew meanwhile."""
    file.start_journal(PLAN.terms.drain_id, PLAN.account.generation)
    last = PLAN.account.generation + 3

    def read_slowly(path: Path) -> bytes:
        data = read_own(path)
        monkeypatch.undo()
        for generation in range(PLAN.account.generation + 1, last + 1):
            file.start_journal(PLAN.terms.drain_id, generation)
            file.write(changed(PLAN, generation=generation))
            file.append(Record(CHANGES))
        return data

    monkeypatch.setattr(plan_file, "read_own", read_slowly)
    found = PlanFile(file.path).load()

    assert found.written.account.generation == last
    assert found.plan.account.watermark(0) == CHANGES[0].watermark
    assert not found.torn


# The name of a plan for which none was given.


@pytest.mark.parametrize(
    ("topic", "group"),
    [("t" * 249, "g" * 249), ("orders", "../../x"), ("t", "ä" * 5000 + "\n\0")],
)
def test_any_topic_and_group_have_a_plan_in_this_folder(
    topic: str, group: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = PlanFile(default_path(topic, group))
    file.acquire()
    file.write(PLAN)
    file.start_journal(PLAN.terms.drain_id, 10**9)
    aside = file.archive(PLAN)
    file.release()

    assert names(tmp_path) == [aside.name]


def test_no_two_drains_have_one_default_plan() -> None:
    assert default_path("orders.v1", "indexer") == Path("orders.v1.indexer.plan.json")
    pairs = [("a.b", "c"), ("a", "b.c"), ("a", "b/c"), ("a", "b-c")]
    pairs += [("a", "b" * 300), ("a", "b" * 301)]
    assert len({default_path(*pair) for pair in pairs}) == len(pairs)
