"""Every case of scenarios/trust, against the installed command on a real broker."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from scenarios.brokers import Broker
from scenarios.trust.case import Case, Stage
from scenarios.trust.cases import all_cases


@pytest.mark.long
@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.id)
def test_what_broke_trust_does_so_no_more(case: Case, broker: Broker, tmp_path: Path) -> None:
    folder = tmp_path / "case"
    folder.mkdir()
    with closing(Stage(broker, folder)) as stage:
        assert case.attempt(stage)
