"""The limits file: written whole or not at all, its owner's, and never another file."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.limit_samples import measured
from drainer.errors import LimitsRefused
from drainer.limits.file import LimitsFile


def test_what_was_written_is_read_and_is_its_owners(tmp_path: Path) -> None:
    file = LimitsFile(tmp_path / "limits.json")
    file.write(measured())

    assert file.load() == measured()
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["limits.json"]


def test_nothing_there_is_nothing_known(tmp_path: Path) -> None:
    file = LimitsFile(tmp_path / "limits.json")

    assert file.find() is None
    with pytest.raises(LimitsRefused, match="it does not exist") as refused:
        file.load()
    assert "drainer limits" in str(refused.value.hint)


@pytest.mark.parametrize(
    ("content", "reason"), [(b"{", "not JSON"), (b'{"drainer_limits": 5}', "damaged")]
)
def test_any_other_file_is_refused_by_name_and_left_as_it_is(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    path = tmp_path / "limits.json"
    path.write_bytes(content)

    with pytest.raises(LimitsRefused, match=reason) as refused:
        LimitsFile(path).find()

    assert str(path) in str(refused.value)
    assert refused.value.hint
    assert path.read_bytes() == content


def test_two_processes_do_not_measure_into_one_file(tmp_path: Path) -> None:
    first, second = (LimitsFile(tmp_path / "limits.json") for _ in range(2))
    with first.lock(), pytest.raises(LimitsRefused, match="another drainer process"), second.lock():
        pass
    with second.lock():
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_missing_is_reported_before_anything_begins(tmp_path: Path) -> None:
    nowhere = LimitsFile(tmp_path / "nowhere" / "limits.json")
    with pytest.raises(LimitsRefused, match="can't write limits") as refused, nowhere.lock():
        pass
    assert "--out" in str(refused.value.hint)
