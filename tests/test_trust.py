"""The rule for files that drainer trusts, tried by users of one machine."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from drainer.host.trust import (
    NotTrusted,
    ensure_new_files_own,
    ensure_trusted,
    make_folder,
    read_own,
    read_trusted,
    share_new,
)
from privileges import for_root

ROOT, ANNA, BEN, MALLORY, ONCALL = 0, 64001, 64002, 64003, 64010
THEIRS = "and others can write its folder"
WHERE = {  # folders by name: their owner, group and mode
    "open": (ROOT, ROOT, 0o1777),
    "open/annas": (ANNA, ANNA, 0o755),
    "open/theirs": (MALLORY, MALLORY, 0o777),
    "annas": (ANNA, ANNA, 0o755),
    "annas/open": (ANNA, ANNA, 0o777),
    "shared": (ROOT, ONCALL, 0o2775),
    "sticky": (ROOT, ONCALL, 0o3775),
    "group": (ROOT, ONCALL, 0o775),
}
FILES = {  # likewise
    "open/file": (ANNA, ANNA, 0o644),
    "open/annas/file": (ANNA, ANNA, 0o644),
    "annas/file": (ANNA, ANNA, 0o644),
    "annas/roots": (ROOT, ROOT, 0o644),
    "annas/open/file": (MALLORY, MALLORY, 0o644),
    "annas/everyone": (ANNA, ANNA, 0o646),
    "shared/file": (ANNA, ONCALL, 0o664),
    "shared/everyone": (ANNA, ONCALL, 0o666),
    "sticky/file": (ANNA, ONCALL, 0o664),
    "group/file": (ANNA, ONCALL, 0o664),
}


@contextmanager
def as_user(uid: int, *groups: int) -> Iterator[None]:
    """Act as a user, who is in these groups beside an own one."""
    before = os.getgroups()
    os.setgroups(groups)
    os.setegid(uid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(before)


@pytest.fixture(scope="module")
def machine() -> Iterator[Path]:
    """Folders and files of several users, in a folder that all of them can enter."""
    with TemporaryDirectory() as name:
        base = Path(name)
        base.chmod(0o755)
        for path, (uid, gid, mode) in (WHERE | FILES).items():
            place = base / path
            place.mkdir() if path in WHERE else place.write_text("content")
            os.chown(place, uid, gid)
            place.chmod(mode)
        for link, target in (("open/link", "annas/file"), ("annas/link", "annas/file")):
            (base / link).symlink_to(base / target)
            os.lchown(base / link, MALLORY, MALLORY)
        yield base


def seen(read: Callable[[Path], bytes], path: Path) -> str:
    try:
        return read(path).decode()
    except NotTrusted as error:
        return str(error)


# By user: what is said of each file when a person names it, and when it is drainer's own record.
SEEN = [
    (ANNA, "open/file", "content", "content"),
    (ANNA, "annas/roots", "content", "content"),
    (ANNA, "annas/everyone", "writable by everyone (mode 0646)", "writable by everyone"),
    (ANNA, "annas/open/file", THEIRS, THEIRS),
    (ANNA, "open/link", THEIRS, THEIRS),
    (ANNA, "annas/link", "content", "content"),
    (BEN, "open/file", "open/file belongs to uid 64001", THEIRS),
    (BEN, "open/annas/file", f"open/annas belongs to uid 64001, {THEIRS}", THEIRS),
    (BEN, "annas/file", "content", "belongs to uid 64001, not to uid 64002"),
    (BEN, "shared/file", "content", "content"),
    (BEN, "shared/everyone", "writable by everyone", "writable by everyone"),
    (BEN, "sticky/file", THEIRS, THEIRS),
    (BEN, "group/file", THEIRS, THEIRS),
    (MALLORY, "shared/file", THEIRS, THEIRS),
    (ROOT, "annas/file", "content", "belongs to uid 64001, not to root (uid 0)"),
    (ROOT, "shared/file", THEIRS, THEIRS),
]


@for_root
@pytest.mark.parametrize(("uid", "path", "named", "own"), SEEN)
def test_a_file_is_trusted_by_who_could_have_put_it_there(
    machine: Path, uid: int, path: str, named: str, own: str
) -> None:
    with as_user(uid, *[ONCALL] * (uid == BEN)):
        assert named in seen(read_trusted, machine / path)
        assert own in seen(read_own, machine / path)


@pytest.mark.parametrize("mode", [0o666, 0o602, 0o646])
def test_what_everyone_can_write_is_read_on_a_read_only_mount_alone(
    tmp_path: Path, mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_text("content")
    path.chmod(mode)
    assert seen(read_trusted, path) == f"{path} is writable by everyone (mode {mode:04o})"
    mount_read_only(tmp_path, monkeypatch)
    assert seen(read_trusted, path) == seen(read_own, path) == "content"
    ensure_trusted(path)


@for_root
def test_a_file_is_found_in_a_folder_that_is_mounted_only_when_it_is_used(tmp_path: Path) -> None:
    """A home folder on a file server may be one. Linux mounts ``tracing`` in the same way."""
    code = "import sys; from drainer.host.trust import read_own as r; print(len(r(sys.argv[1])))"
    mount = '[ -e "$0/tracing" ] || mount -t debugfs none "$0" || exit 77'
    script = f"{mount}; {sys.executable} -c '{code}' \"$0/tracing/README\""
    words = ["unshare", "--mount", "bash", "-c", script, str(tmp_path)]
    found = subprocess.run(words, capture_output=True, text=True, check=False)
    if found.returncode == 77 or "unshare failed" in found.stderr:
        pytest.skip(f"root may mount nothing here: {found.stderr}")
    assert found.returncode == 0, found.stderr
    assert int(found.stdout) > 0


@for_root
def test_a_link_of_another_user_to_a_read_only_mount_is_not_followed(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mount may be a disk or an image whose content that user chose."""
    mount_read_only(machine / "annas", monkeypatch)
    with as_user(BEN):
        assert THEIRS in seen(read_trusted, machine / "open/link")
        assert seen(read_trusted, machine / "annas/open/file") == "content"


def mount_read_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the folder look like a read-only mount."""
    found = os.statvfs(folder)
    read_only = os.statvfs_result((*found[:8], found.f_flag | os.ST_RDONLY, found.f_namemax))

    def statvfs(descriptor: int) -> os.statvfs_result:
        place = Path(f"/proc/self/fd/{descriptor}").readlink()
        return read_only if place.is_relative_to(folder) else found

    monkeypatch.setattr(os, "statvfs", statvfs)


@pytest.mark.parametrize("read", [read_own, read_trusted])
def test_only_a_regular_file_is_opened(tmp_path: Path, read: Callable[[Path], bytes]) -> None:
    """A device may have no end."""
    for path in (Path("/dev/zero"), tmp_path):
        with pytest.raises(OSError, match="not a regular file"):
            read(path)
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        read(tmp_path / "a")


def test_a_record_is_no_pipe_and_a_named_file_may_be_one_of_a_shell(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    reading, writing = os.pipe()
    (tmp_path / "link").symlink_to(f"/proc/self/fd/{reading}")
    for name in ("fifo", "link"):
        with pytest.raises(OSError, match="not a regular file"):
            read_own(tmp_path / name)
    os.close(reading)
    os.close(writing)
    code = "import sys; from drainer.host.trust import read_trusted as r; print(r(sys.argv[1]))"
    script = f"{sys.executable} -c '{code}' <(echo piped)"
    words = ["bash", "-c", script]
    assert subprocess.run(words, capture_output=True, check=True).stdout == b"b'piped\\n'\n"


def test_a_file_that_is_replaced_while_it_is_opened_is_the_one_that_was_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other, look = tmp_path / "file", tmp_path / "other", os.open
    path.write_text("looked at")

    def replaced_after_opening(name: Path | str, *flags: int, **more: int) -> int:
        found = look(name, *flags, **more)
        if name == "file":
            other.write_text("another")
            other.replace(path)
        return found

    monkeypatch.setattr(os, "open", replaced_after_opening)
    assert seen(read_own, path) == "looked at"


@for_root
@pytest.mark.parametrize("name", ["folder", "link"])
def test_a_name_that_is_swapped_while_drainer_looks_gains_nothing(
    machine: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Everyone can rename all names in a folder that everyone can write and that is not sticky."""
    place, look = machine / "open" / f"swapped {name}", os.open
    place.mkdir()
    place.chmod(0o777)
    for below, uid in (("annas", ANNA), ("forged", MALLORY)):
        for kind in ("folder", "target"):
            (place / below / kind).mkdir(parents=True)
            (place / below / kind / "file").write_text(below)
            os.chown(place / below / kind / "file", uid, uid)
        (place / below / "link").symlink_to(place / below / "target")
        for each in (place / below).iterdir():
            os.lchown(each, uid, uid)
    (place / "annas" / name).rename(place / name)

    def swapped_after_opening(opened: Path | str, *flags: int, **more: int) -> int:
        found = look(opened, *flags, **more)
        if Path(opened).name == name:
            os.seteuid(ROOT)  # Mallory could do the same.
            (place / name).rename(place / "annas" / name)
            (place / "forged" / name).rename(place / name)
            os.seteuid(ANNA)
        return found

    monkeypatch.setattr(os, "open", swapped_after_opening)
    with as_user(ANNA):
        assert seen(read_trusted, place / name / "file") == "annas"


@for_root
@pytest.mark.parametrize(
    ("uid", "folder", "mode"),
    [
        (ANNA, "shared", 0o660),
        (ROOT, "shared", 0o640),
        (ANNA, "annas", 0o600),
        (ANNA, "sticky", 0o600),
    ],
)
def test_a_group_that_shares_a_folder_gets_the_files_that_are_made_there(
    machine: Path, uid: int, folder: str, mode: int
) -> None:
    """Whatever the umask is; root's can only be read, or root could not resume them."""
    path, below = machine / folder / "new", machine / folder / "below"
    before = os.umask(0o077)
    try:
        with as_user(uid, *[ONCALL] * bool(uid)):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            share_new(descriptor, path.parent)
            os.close(descriptor)
            make_folder(below)
            assert stat.S_IMODE(path.stat().st_mode) == mode
        modes = {"shared": 0o2770, "sticky": 0o2700, "annas": 0o700}
        assert stat.S_IMODE(below.stat().st_mode) == modes[folder]
    finally:
        os.umask(before)
        path.unlink()
        below.rmdir()


@for_root
def test_a_folder_whose_files_no_resume_would_trust_is_noticed(machine: Path) -> None:
    with as_user(ANNA):
        ensure_new_files_own(machine / "annas")
        with pytest.raises(NotTrusted, match=THEIRS):
            ensure_new_files_own(machine / "open" / "theirs")
