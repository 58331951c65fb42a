"""The plan on disk: whole or not at all, private, and held by one process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO

import pytest
from plans import PLAN, mode_of, progress, with_progress

from drainer.core.progress import Progress
from drainer.errors import PlanNotWritten, PlanRefused
from drainer.ownership import read_own
from drainer.store import atomic_file, plan_file
from drainer.store.plan_file import PlanFile, default_path
from privileges import without_privileges

LATER = replace(with_progress(PLAN, p0=progress(160)), generation=8)
CHANGES = {0: progress(121)}

Break = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture
def file(tmp_path: Path) -> PlanFile:
    plan_file = PlanFile(tmp_path / "orders.plan.json")
    plan_file.write(PLAN)
    return plan_file


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def run(code: str, *args: object) -> subprocess.Popen[str]:
    """Another process of drainer; it ends when its standard input does."""
    prelude = """
        import sys
        from pathlib import Path
        sys.path.insert(0, sys.argv[2])
        from drainer.errors import *
        from drainer.store.plan_file import PlanFile
        from plans import *
        file = PlanFile(Path(sys.argv[1]))
    """
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(prelude) + textwrap.dedent(code), *map(str, args)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@contextmanager
def another_process(code: str, path: Path) -> Iterator[subprocess.Popen[str]]:
    process = run(code, path, Path(__file__).parent)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line(process: subprocess.Popen[str]) -> str:
    stdout: IO[str] | None = process.stdout
    assert stdout is not None
    return stdout.readline().strip()


# Written whole or not at all.


def test_a_plan_is_read_as_it_was_written(file: PlanFile) -> None:
    assert file.load().plan == file.load().written == PLAN
    file.write(LATER)
    assert file.load().plan == LATER


def test_plan_journal_and_lock_are_nobody_elses(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        file = PlanFile(tmp_path / "orders.plan.json")
        file.hold()
        file.write(PLAN)
        file.start_journal(PLAN.drain_id, PLAN.generation)
        file.append(CHANGES)
        modes = {path.name: mode_of(path) for path in tmp_path.iterdir()}
        file.release()
    finally:
        os.umask(before)

    assert modes == {
        "orders.plan.json": 0o600,
        "orders.plan.json.journal-7": 0o600,
        ".orders.plan.json.lock": 0o600,
    }


def fail_to_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)


def fail_to_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", refuse)


def fail_to_replace(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "replace", refuse)
    monkeypatch.setattr(os, "replace", refuse)


@pytest.mark.parametrize("break_it", [fail_to_open, fail_to_sync, fail_to_replace])
def test_a_failed_write_leaves_the_old_plan(
    break_it: Break, file: PlanFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        break_it(broken)
        with pytest.raises(PlanNotWritten, match=r"denied|Input/output error") as caught:
            file.write(LATER)

    assert caught.value.exit_code == 4
    assert "resume" in (caught.value.hint or "")
    assert file.load().plan == PLAN
    assert names(file.path.parent) == ["orders.plan.json"]


def test_a_folder_that_can_not_be_synced_leaves_a_whole_plan(
    file: PlanFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = os.fsync
    calls: list[int] = []

    def fail_the_second(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 2:
            raise OSError(5, "Input/output error")
        whole(descriptor)

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", fail_the_second)
        with pytest.raises(PlanNotWritten):
            file.write(LATER)

    assert len(calls) == 2, "the folder is synced as well"
    assert file.load().plan in (PLAN, LATER)


def test_a_failed_write_keeps_the_journals(file: PlanFile, monkeypatch: pytest.MonkeyPatch) -> None:
    file.start_journal(PLAN.drain_id, PLAN.generation)
    file.append(CHANGES)
    file.start_journal(PLAN.drain_id, LATER.generation)
    with monkeypatch.context() as broken:
        fail_to_sync(broken)
        with pytest.raises(PlanNotWritten):
            file.write(LATER)
    file.release()

    assert file.load().plan == PLAN.merge(CHANGES)


def test_a_half_written_new_plan_is_no_obstacle(file: PlanFile) -> None:
    """What a kill leaves behind."""
    left = file.path.with_name(f"{atomic_file.prefix_of_new(file.path)}1.new")
    left.write_bytes(LATER.encode()[:100])

    assert file.load().plan == PLAN
    file.write(LATER)
    assert file.load().plan == LATER
    assert names(file.path.parent) == ["orders.plan.json"]


def test_a_link_in_the_way_is_not_followed(file: PlanFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder like /tmp somebody else may have put it there, to have a file written over."""
    precious = file.path.with_name("precious")
    precious.write_text("mine")
    monkeypatch.setattr(atomic_file, "token_hex", lambda size: "known")
    for name in (".orders.plan.json.new", f"{atomic_file.prefix_of_new(file.path)}known.new"):
        file.path.with_name(name).symlink_to(precious)
    with pytest.raises(PlanNotWritten, match="File exists"):
        file.write(LATER)
    journal = file.path.with_name("orders.plan.json.journal-8")
    journal.symlink_to(precious)
    file.start_journal(PLAN.drain_id, 8)
    file.append(CHANGES)
    file.release()

    assert precious.read_text() == "mine"
    assert not journal.is_symlink()
    assert mode_of(journal) == 0o600


def test_what_lay_there_with_another_mode_is_private_in_the_end(file: PlanFile) -> None:
    journal = file.path.with_name("orders.plan.json.journal-8")
    for path in (file.path, file.path.with_name(".orders.plan.json.new"), journal):
        path.write_bytes(b"")
        path.chmod(0o666)
    file.write(LATER)
    file.start_journal(PLAN.drain_id, 8)
    file.append(CHANGES)
    file.release()

    assert {mode_of(path) for path in (file.path, journal)} == {0o600}
    assert file.load().plan.watermark(0) == LATER.merge(CHANGES).watermark(0)


def test_the_plan_is_synced_before_it_takes_its_name(
    file: PlanFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a loss of power could leave the name with nothing behind it."""
    events: list[str] = []
    sync, rename = os.fsync, Path.replace

    def note_sync(descriptor: int) -> None:
        target = Path(f"/proc/self/fd/{descriptor}").readlink()
        events.append(f"sync {target.name}")
        sync(descriptor)

    def note_replace(self: Path, target: Path) -> Path:
        events.append(f"replace {target.name}")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(Path, "replace", note_replace)
    file.write(LATER)

    folder = file.path.parent.name
    first = events.pop(0)
    assert re.fullmatch(r"sync \.drainer-[0-9a-f]{8}-[0-9a-f]{16}\.new", first)
    assert events == [
        "replace orders.plan.json",
        f"sync {folder}",
    ]


# A full disk.


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB that has room for a plan and not for two."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"can't mount a small file system: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def fill(folder: Path) -> None:
    with (folder / "filler").open("ab", buffering=0) as stream:
        for size in (4096, 1):
            try:
                while stream.write(bytes(size)):
                    pass
            except OSError:
                continue


def test_a_full_disk_leaves_the_old_plan_and_says_so(small_disk: Path) -> None:
    file = PlanFile(small_disk / "orders.plan.json")
    file.write(PLAN)
    fill(small_disk)

    with pytest.raises(PlanNotWritten, match="No space left on device") as caught:
        file.write(LATER)

    assert "make room" in (caught.value.hint or "")
    assert names(small_disk) == ["filler", "orders.plan.json"]
    assert file.load().plan == PLAN
    (small_disk / "filler").unlink()
    file.write(LATER)
    assert file.load().plan == LATER


def test_a_journal_on_a_full_disk_keeps_what_it_took(small_disk: Path) -> None:
    file = PlanFile(small_disk / "orders.plan.json")
    file.write(PLAN)
    file.start_journal(PLAN.drain_id, PLAN.generation)
    fill(small_disk)
    taken: list[int] = []

    def append_until_its_last_page_is_full() -> None:
        for watermark in range(121, 200):
            file.append({0: progress(watermark)})
            taken.append(watermark)

    with pytest.raises(PlanNotWritten, match=r"(?i)no space left on device"):
        append_until_its_last_page_is_full()
    file.release()

    assert len(taken) > 1
    assert file.load().plan == PLAN.merge({0: progress(taken[-1])})


def test_a_journal_that_can_not_be_begun_leaves_no_open_file(small_disk: Path) -> None:
    file = PlanFile(small_disk / "orders.plan.json")
    file.write(PLAN)
    fill(small_disk)
    before = len(names(Path("/proc/self/fd")))

    for _ in range(5):
        with pytest.raises(PlanNotWritten):
            file.start_journal(PLAN.drain_id, PLAN.generation)
    file.release()

    assert len(names(Path("/proc/self/fd"))) == before


def test_a_limit_on_the_size_of_files_tears_no_plan(file: PlanFile) -> None:
    """As a quota or a full disk would, everywhere: the write stops in the middle of a record."""
    code = """
        import resource, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        file.hold()
        file.start_journal(PLAN.drain_id, PLAN.generation)
        file.append({0: progress(121)})
        size = file.path.with_name(file.path.name + ".journal-7").stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 50, size + 50))
        for attempt in (lambda: file.append({0: progress(122)}), lambda: file.write(PLAN)):
            try:
                attempt()
                print("written")
            except PlanNotWritten as error:
                print(error.exit_code)
    """
    with another_process(code, file.path) as process:
        assert process.communicate(timeout=20)[0].split() == ["4", "4"]

    loaded = file.load()
    assert loaded.plan == PLAN.merge({0: progress(121)})
    assert loaded.journal_torn


# Refused before anything is touched.


def refused(path: Path) -> PlanRefused:
    with pytest.raises(PlanRefused) as caught:
        PlanFile(path).hold()
    assert caught.value.exit_code == 3
    assert caught.value.hint
    return caught.value


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that others can reach, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def test_a_folder_that_can_not_be_written_to_is_refused(public_folder: Path) -> None:
    public_folder.chmod(0o555)
    with without_privileges():
        error = refused(public_folder / "orders.plan.json")

    assert "Permission denied" in str(error)
    assert str(public_folder) in str(error)
    assert names(public_folder) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has files that are closed to nobody")
def test_the_lock_that_another_user_left_is_named_with_the_way_out(public_folder: Path) -> None:
    file = PlanFile(public_folder / "orders.plan.json")
    file.hold()
    public_folder.chmod(0o777)
    with without_privileges():
        error = refused(file.path)
    lock = public_folder / ".orders.plan.json.lock"

    assert str(error).startswith(f"{lock} is another user's")
    assert error.hint is not None
    assert error.hint.endswith(f"remove its lock: rm -- {lock}")


def test_a_plan_that_can_not_be_read_is_refused(public_folder: Path) -> None:
    file = PlanFile(public_folder / "orders.plan.json")
    file.write(PLAN)
    file.path.chmod(0o000)
    with without_privileges(), pytest.raises(PlanRefused, match="can't be read: Permission denied"):
        file.load()


def test_a_read_only_file_system_is_refused(small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)

    assert "Read-only file system" in str(refused(small_disk / "orders.plan.json"))


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    refused(tmp_path / "file" / "orders.plan.json")


def test_proc_is_no_place_for_a_plan() -> None:
    refused(Path("/proc/orders.plan.json"))


def test_a_missing_plan_is_refused_with_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(PlanRefused, match="there is no plan at") as caught:
        PlanFile(tmp_path / "orders.plan.json").load()

    assert "drainer run" in (caught.value.hint or "")


@pytest.mark.parametrize("content", [b"", b"{}", b"nonsense", PLAN.encode()[:-20]])
def test_a_damaged_plan_is_refused_by_its_path(content: bytes, file: PlanFile) -> None:
    file.path.write_bytes(content)

    with pytest.raises(PlanRefused, match="can't be trusted") as caught:
        file.load()

    assert str(file.path) in str(caught.value)
    assert caught.value.hint


def test_a_folder_in_place_of_the_plan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanRefused, match="can't be read"):
        PlanFile(tmp_path).load()


# Held by one process.

HOLD = """
    file.hold()
    print("held", flush=True)
    sys.stdin.read()
"""

TRY = """
    try:
        file.hold()
        print("held")
    except PlanRefused as error:
        print(error.exit_code, error)
"""


def test_a_second_process_can_not_hold_the_plan(file: PlanFile) -> None:
    file.hold()
    with another_process(TRY, file.path) as process:
        out = process.communicate(timeout=20)[0]
    file.release()

    assert out.startswith("3 another drainer process is working with")


def test_the_plan_is_free_once_its_holder_was_killed(file: PlanFile) -> None:
    with another_process(HOLD, file.path) as holder:
        assert line(holder) == "held"
        assert "another drainer process" in str(refused(file.path))
        holder.send_signal(signal.SIGKILL)
        holder.wait(20)

        file.hold()

        with another_process(TRY, file.path) as other:
            assert other.communicate(timeout=20)[0].startswith("3 ")
        file.release()


def test_the_plan_is_free_once_it_was_released(file: PlanFile) -> None:
    file.hold()
    file.release()

    with another_process(TRY, file.path) as process:
        assert process.communicate(timeout=20)[0] == "held\n"


def test_nothing_of_the_lock_remains(file: PlanFile) -> None:
    file.hold()
    file.release()
    file.release()

    assert names(file.path.parent) == ["orders.plan.json"]


def test_what_was_appended_survives_a_kill(file: PlanFile) -> None:
    code = """
        file.hold()
        file.start_journal(PLAN.drain_id, PLAN.generation)
        for watermark in range(121, 201):
            file.append({0: progress(watermark)})
            print(watermark, flush=True)
        sys.stdin.read()
    """
    with another_process(code, file.path) as process:
        for expected in range(121, 151):
            assert line(process) == str(expected)
        process.send_signal(signal.SIGKILL)
        process.wait(20)

    assert file.load().plan.watermark(0) >= 150


# What else lies beside it.


def test_appending_before_the_journal_is_begun_is_a_bug(file: PlanFile) -> None:
    with pytest.raises(RuntimeError):
        file.append(CHANGES)


def test_appending_after_the_journal_could_not_be_begun_is_no_bug(
    file: PlanFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        fail_to_open(broken)
        with pytest.raises(PlanNotWritten):
            file.start_journal(PLAN.drain_id, PLAN.generation)

    with pytest.raises(PlanNotWritten, match="Permission denied") as caught:
        file.append(CHANGES)

    assert caught.value.exit_code == 4


def test_a_plan_that_nobody_touched_is_unchanged(file: PlanFile) -> None:
    file.start_journal(PLAN.drain_id, PLAN.generation)
    file.append(CHANGES)
    file.insist_unchanged(file.load())
    file.release()
    nothing = PlanFile(file.path.with_name("other.plan.json"))
    nothing.insist_unchanged(None)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda file: file.write(LATER), "has changed"),
        (lambda file: file.append({0: progress(122)}), "has changed"),
        (lambda file: file.path.unlink(), "is gone"),
    ],
    ids=["plan", "journal", "gone"],
)
def test_a_plan_that_changed_since_it_was_looked_at_is_refused(
    change: Callable[[PlanFile], object], says: str, file: PlanFile
) -> None:
    file.start_journal(PLAN.drain_id, PLAN.generation)
    seen = file.load()
    change(file)

    with pytest.raises(PlanRefused, match=says) as caught:
        file.insist_unchanged(seen)

    assert caught.value.hint
    file.release()


def test_a_plan_that_appeared_since_is_refused(file: PlanFile) -> None:
    with pytest.raises(PlanRefused, match="has appeared"):
        file.insist_unchanged(None)


def test_the_plan_of_a_drain_that_handled_nothing_is_taken_back(tmp_path: Path) -> None:
    file = PlanFile(tmp_path / "orders.plan.json")
    file.hold()
    file.write(PLAN)
    file.start_journal(PLAN.drain_id, PLAN.generation)
    file.take_back(PLAN, None)
    file.release()

    assert names(tmp_path) == []


def test_a_plan_with_progress_is_not_taken_back(file: PlanFile) -> None:
    file.start_journal(PLAN.drain_id, PLAN.generation)
    file.append(CHANGES)
    file.take_back(PLAN, None)
    file.release()

    assert file.load().plan == PLAN.merge(CHANGES)


def test_what_was_set_aside_returns_when_the_new_plan_is_taken_back(file: PlanFile) -> None:
    aside = file.set_aside(PLAN)
    file.write(LATER)
    file.take_back(LATER, aside)

    assert names(file.path.parent) == ["orders.plan.json"]
    assert file.load().plan == PLAN


def test_a_plan_that_can_not_be_set_aside_stays(
    file: PlanFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as broken:
        broken.setattr(Path, "rename", refuse)
        with pytest.raises(PlanRefused, match="Permission denied"):
            file.set_aside(PLAN)

    assert file.load().plan == PLAN


def test_a_finished_plan_is_set_aside_without_its_journals(file: PlanFile) -> None:
    file.start_journal(PLAN.drain_id, PLAN.generation)
    file.release()

    aside = file.set_aside(PLAN)

    assert names(file.path.parent) == [f"orders.plan.{PLAN.drain_id}.json"]
    assert PlanFile(aside).load().plan == PLAN


def test_a_finished_plan_that_is_set_aside_has_its_journal_folded_in(file: PlanFile) -> None:
    """As when the drain died between its last journal line and its last save."""
    file.start_journal(PLAN.drain_id, PLAN.generation)
    file.append(CHANGES)
    file.release()
    known = file.load().plan
    assert known != PLAN

    aside = file.set_aside(known)

    assert names(file.path.parent) == [aside.name]
    assert PlanFile(aside).load().written == known


def test_a_full_disk_refuses_to_set_a_plan_aside_and_leaves_it_with_its_journal(
    file: PlanFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.start_journal(PLAN.drain_id, PLAN.generation)
    file.append(CHANGES)
    file.release()

    def refuse(self: PlanFile, plan: object) -> None:
        raise PlanNotWritten("disk full", hint="make room, then resume")

    with monkeypatch.context() as broken:
        broken.setattr(PlanFile, "write", refuse)
        with pytest.raises(PlanRefused, match="disk full") as caught:
            file.set_aside(file.load().plan)

    assert "resume" not in (caught.value.hint or "")
    assert file.load().plan == PLAN.merge(CHANGES)


def test_plans_in_one_folder_do_not_disturb_each_other(file: PlanFile) -> None:
    other = PlanFile(file.path.with_name("orders.plan.json2"))
    other.write(with_progress(PLAN, p2=Progress(7)))
    file.start_journal(PLAN.drain_id, PLAN.generation)
    file.append(CHANGES)
    file.hold()
    other.hold()
    other.write(with_progress(replace(PLAN, generation=99), p2=Progress(8)))
    other.remove_journals()

    assert file.load().plan == PLAN.merge(CHANGES)
    assert other.load().plan.watermark(2) == 8
    file.release()
    other.release()


def test_an_older_plan_beside_a_newer_journal_is_refused(file: PlanFile) -> None:
    """As after a copy is put back: its own journals went when newer plans took them in."""
    file.write(PLAN)
    older = file.path.read_bytes()
    for generation in range(PLAN.generation, PLAN.generation + 3):
        file.start_journal(PLAN.drain_id, generation)
        file.write(with_progress(replace(PLAN, generation=generation), p0=progress(130)))
        file.append({0: progress(131)})
    assert file.load().plan.watermark(0) == 131
    file.path.write_bytes(older)

    with pytest.raises(PlanRefused, match="is older than its journal") as caught:
        file.load()

    assert "put the newer plan back" in (caught.value.hint or "")


@pytest.mark.parametrize("saves", [1, 2, 5])
def test_a_plan_that_a_drain_saves_while_it_is_read_is_read_again(
    saves: int, file: PlanFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the plan and its journals, which it folds in and begins anew meanwhile."""
    file.start_journal(PLAN.drain_id, PLAN.generation)
    last = PLAN.generation + saves

    def read_slowly(path: Path) -> bytes:
        data = read_own(path)
        monkeypatch.undo()
        for generation in range(PLAN.generation + 1, last + 1):
            file.start_journal(PLAN.drain_id, generation)
            file.write(replace(PLAN, generation=generation))
            file.append(CHANGES)
        return data

    monkeypatch.setattr(plan_file, "read_own", read_slowly)
    found = PlanFile(file.path).load()

    assert found.written.generation == last
    assert found.plan.watermark(0) == CHANGES[0].watermark
    assert not found.journal_torn


def test_a_holder_has_a_name_that_no_holder_of_a_copy_has(
    file: PlanFile, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.hold()
    copy = PlanFile(tmp_path_factory.mktemp("copy") / file.path.name)
    copy.hold()
    assert copy.holder != file.holder
    copy.release()
    file.release()
    with another_process(HOLD, file.path) as holder:
        assert line(holder) == "held"
        theirs = PlanFile(file.path).holder
        holder.send_signal(signal.SIGKILL)
        holder.wait(20)
        file.hold()
        assert file.holder == theirs, "the lock of a dead holder is taken over at once"
    monkeypatch.setattr(plan_file, "this_machine", lambda: "another container of this host name")
    assert file.holder != theirs
    file.release()


# The name of a plan for which none was said.


def test_a_plan_is_named_after_topic_and_group() -> None:
    assert default_path("orders.v1", "indexer") == Path("orders.v1.indexer.plan.json")


@pytest.mark.parametrize(
    ("topic", "group"),
    [
        ("t" * 249, "g" * 249),
        ("orders", "a/b"),
        ("orders", "../../x"),
        ("t", "ä" * 5000 + "\n\0"),
    ],
)
def test_any_topic_and_group_have_a_plan_in_this_folder(
    topic: str, group: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = PlanFile(default_path(topic, group))
    file.hold()
    file.write(PLAN)
    file.start_journal(PLAN.drain_id, 10**9)
    aside = file.set_aside(PLAN)
    file.release()

    assert names(tmp_path) == [aside.name]


def test_no_two_drains_have_one_default_plan() -> None:
    pairs = [
        ("a.b", "c"),
        ("a", "b.c"),
        ("a", "b/c"),
        ("a", "b-c"),
        ("a", "b" * 300),
        ("a", "b" * 301),
    ]
    assert len({default_path(*pair) for pair in pairs}) == len(pairs)
