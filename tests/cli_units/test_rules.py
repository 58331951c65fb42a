"""The options of the rules as settings, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from drainer.cli.options import RuleOptions
from drainer.errors import UsageError
from drainer.model.rules import RuleSettings

FILES = {
    "good.toml": 'max_per_key = 7\n[[skip]]\nname = "mails"\nwhen = "key == \'m\'"\n',
    "spoilt.toml": "[[skip",
    "wrong.toml": '[[skip]]\nname = "mails"\nwhen = "key ="\n',
    "unknown.toml": '[[skip]]\nname = "mails"\nwen = "barrier"\n',
    "same.toml": '[[skip]]\nname = "skip-key a"\nkeys = ["a"]\n',
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        Path(name).write_text(text)


def names(settings: RuleSettings) -> list[str]:
    return [rule.name for rule in settings.skip]


def test_what_is_typed_comes_behind_the_file_and_takes_the_place_of_what_was_known() -> None:
    found = RuleOptions(rules=Path("good.toml"), skip_keys=("z",)).over()
    assert (names(found), found.max_per_key) == (["mails", "skip-key z"], 7)
    assert names(RuleOptions(skip_keys=("b",)).over(found)) == ["skip-key b"]
    assert RuleOptions(max_per_key=9).over(found).skip == found.skip


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"skips": ("key = 'a'",)}, "from character 5 on"),
        ({"skips": ("kye == 'a'",)}, "there is no kye"),
        ({"skips": ("true",)}, "has no field"),
        ({"skips": ("",)}, "empty"),
        ({"rules": Path("gone.toml")}, "can't read the rules file gone.toml"),
        ({"rules": Path("spoilt.toml")}, "can't read the rules file spoilt.toml"),
        ({"rules": Path("wrong.toml")}, "rule 'mails': syntax error"),
        ({"rules": Path("unknown.toml")}, "rule 1 has an unknown field 'wen'"),
        ({"rules": Path("same.toml"), "skip_keys": ("a",)}, "two rules have the name 'skip-key a'"),
    ],
    ids=str,
)
def test_what_can_not_be_understood_is_a_usage_error(given: dict[str, Any], error: str) -> None:
    with pytest.raises(UsageError) as caught:
        RuleOptions(**given).over()
    assert error in str(caught.value)
    assert caught.value.hint
