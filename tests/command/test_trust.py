"""Cases of scenarios/trust, against the installed command on a real broker."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from command.process import begin
from scenarios.brokers import Broker
from scenarios.trust.case import Case, Stage
from scenarios.trust.cases import all_cases


def cases(*, quick: bool) -> pytest.MarkDecorator:
    found = [case for case in all_cases() if case.quick is quick]
    return pytest.mark.parametrize("case", found, ids=lambda case: case.id)


def attempt(case: Case, broker: Broker, folder: Path) -> None:
    folder.mkdir()
    with closing(Stage(broker, folder, begin)) as stage:
        assert case.attempt(stage)


@cases(quick=True)
def test_what_broke_trust_no_longer_does(case: Case, broker: Broker, tmp_path: Path) -> None:
    attempt(case, broker, tmp_path / "case")


@pytest.mark.long
@cases(quick=False)
def test_what_broke_trust_no_longer_does_though_it_takes_long(
    case: Case, broker: Broker, tmp_path: Path
) -> None:
    attempt(case, broker, tmp_path / "case")
