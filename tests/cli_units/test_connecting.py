"""Before a plan is acted on, a person is told who names the brokers."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders import changed
from drainer.cli.connecting import ConnectionOptions
from drainer.errors import Refused
from drainer.store.plan_file import PlanFile
from view.samples import plan, terminal

PLAN = changed(plan(), client_config=None)
BROKERS = PLAN.terms.bootstrap_servers


@pytest.mark.parametrize(
    ("options", "named_by"),
    [
        (ConnectionOptions(), "from the plan"),
        (ConnectionOptions(bootstrap_server=BROKERS), "from your options"),
        (
            ConnectionOptions(client_properties=(f"bootstrap.servers={BROKERS}",)),
            "from the client properties",
        ),
    ],
)
def test_the_brokers_are_from_the_plan_only_if_nothing_else_names_them(
    options: ConnectionOptions, named_by: str, tmp_path: Path
) -> None:
    shown, _, err = terminal()
    file = PlanFile(tmp_path / "orders.plan.json")
    with pytest.raises(Refused):
        options.settings_by_plan(shown, file, PLAN, yes=False, loads=())
    assert f"connects to   {BROKERS}  ({named_by})" in err.getvalue()
