"""A file is taken only if its user or root alone could have written it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from drainer.ownership import NotOwn, read_own

SOMEBODY = 65534
for_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


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


@pytest.mark.parametrize("mode", [0o666, 0o602, 0o646])
def test_a_file_that_anybody_can_write_is_refused(path: Path, mode: int) -> None:
    path.chmod(mode)
    assert refused(path) == f"{path} is writable by everyone (mode {mode:04o})"


@for_root
def test_a_file_of_another_user_is_refused_and_so_is_a_link_to_it(path: Path) -> None:
    os.chown(path, SOMEBODY, SOMEBODY)
    link = path.with_name("link")
    link.symlink_to(path)
    for each in (path, link):
        assert "belongs to nobody (uid 65534), not to root" in refused(each)


@for_root
def test_a_group_may_write_if_it_has_that_user_alone(path: Path) -> None:
    path.chmod(0o664)
    assert read_own(path) == b"content"
    os.chown(path, 0, SOMEBODY)
    assert "is writable by group nogroup (gid 65534) (mode 0664)" in refused(path)
