"""A file is taken only if its user or root alone could have written it."""

from __future__ import annotations

import errno
import os
import pwd
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from drainer.ownership import NotOwn, read_own, read_regular
from privileges import UNPRIVILEGED, for_root

NAME = pwd.getpwuid(UNPRIVILEGED).pw_name
NO_ID = 0xFFFF_FFFF


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "file"
    made.write_bytes(b"content")
    return made


def refused(path: Path) -> str:
    with pytest.raises(NotOwn) as caught:
        read_own(path)
    assert (caught.value.exit_code, bool(caught.value.hint)) == (3, True)
    return str(caught.value)


def set_access_list(path: Path, *entries: tuple[int, int, int]) -> None:
    """Tag, permissions and id of each, beside the owner's and everybody's."""
    listed = sorted([(0x01, 6, NO_ID), *entries, (0x20, 4, NO_ID)])
    packed = b"".join(struct.pack("<HHI", *each) for each in listed)
    try:
        os.setxattr(path, "system.posix_acl_access", struct.pack("<I", 2) + packed)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        pytest.skip("this file system has no access lists")


@pytest.mark.parametrize("mode", [0o666, 0o602, 0o646])
def test_a_file_that_everyone_can_write_is_refused(path: Path, mode: int) -> None:
    path.chmod(mode)
    assert refused(path) == f"{path} is writable by everyone (mode {mode:04o})"


@for_root
def test_a_file_of_another_user_is_refused_and_so_is_a_link_to_it(path: Path) -> None:
    os.chown(path, UNPRIVILEGED, UNPRIVILEGED)
    link = path.with_name("link")
    link.symlink_to(path)
    for each in (path, link):
        assert f"belongs to {NAME} (uid 65534), not to root" in refused(each)


@for_root
def test_a_group_may_write_if_it_has_that_user_alone(path: Path) -> None:
    path.chmod(0o664)
    assert read_own(path) == b"content"
    os.chown(path, 0, UNPRIVILEGED)
    assert "is writable by group nogroup (gid 65534) (mode 0664)" in refused(path)


def test_a_group_is_not_private_if_it_is_another_user_s_primary_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members of a group do not include whose primary group it is."""
    path.chmod(0o664)
    me = pwd.getpwuid(os.geteuid())
    other = pwd.struct_passwd(
        ("mallory", "x", UNPRIVILEGED, path.stat().st_gid, "", "/", "/bin/sh")
    )
    monkeypatch.setattr(pwd, "getpwall", lambda: [me])
    known = path.stat().st_gid == me.pw_gid and me.pw_name == "root"
    assert not known or read_own(path) == b"content"
    monkeypatch.setattr(pwd, "getpwall", lambda: [me, other])
    assert "is writable by group" in refused(path)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has these access lists")
@pytest.mark.parametrize(
    ("tag", "permissions", "who"),
    [(0x02, 6, f"user {NAME} (uid 65534)"), (0x08, 2, "group nogroup (gid 65534)"), (0x02, 4, "")],
)
@for_root
def test_who_may_write_by_an_access_list_counts(
    path: Path, tag: int, permissions: int, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pwd, "getpwall", lambda: [pwd.getpwuid(0)])
    set_access_list(path, (tag, permissions, UNPRIVILEGED), (0x04, 4, NO_ID), (0x10, 7, NO_ID))
    if who:
        assert f"is writable by {who}, by its access list" in refused(path)
    else:
        assert read_own(path) == b"content"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has these access lists")
@pytest.mark.parametrize(("permissions", "refuses"), [(4, False), (6, True)])
@for_root
def test_with_an_access_list_the_group_has_what_that_gives_it(
    path: Path, permissions: int, refuses: bool
) -> None:
    """The mode then shows the most that the list gives to any user, here to root."""
    os.chown(path, 0, UNPRIVILEGED)
    set_access_list(path, (0x02, 6, 0), (0x04, permissions, NO_ID), (0x10, 6, NO_ID))
    assert path.stat().st_mode & 0o777 == 0o664
    if refuses:
        assert "is writable by group nogroup (gid 65534), by its access list" in refused(path)
    else:
        assert read_own(path) == b"content"


@pytest.mark.parametrize("read", [read_own, read_regular])
def test_only_a_regular_file_is_opened(tmp_path: Path, read: Callable[[Path], bytes]) -> None:
    """A FIFO's reader would wait for ever, and a device may have no end."""
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/zero"), tmp_path):
        with pytest.raises(OSError, match="not a regular file"):
            read(path)
