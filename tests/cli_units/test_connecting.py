"""Before a plan is acted on, a person is told who names the brokers."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from builders import changed
from drainer.cli.app import app
from drainer.model.resuming import Resuming
from drainer.store.plan_file import PlanFile
from view.samples import plan

PLAN = changed(plan(), client_config=None)
BROKERS, RESUME = PLAN.terms.bootstrap_servers, "resume p.json"


@pytest.mark.parametrize(
    ("words", "variable", "named_by"),
    [
        (RESUME, None, "from the plan"),
        (f"{RESUME} -b {BROKERS}", None, "from your options"),
        (f"{RESUME} -b {BROKERS}", "other:9092", "from your options"),
        (f"{RESUME} -X bootstrap.servers={BROKERS}", None, "from the client properties"),
        (RESUME, BROKERS, "from DRAINER_BOOTSTRAP_SERVER"),
        (f"--profile prod.toml {RESUME}", None, "from prod.toml"),
    ],
)
def test_the_place_that_names_the_brokers_is_shown(
    words: str, variable: str | None, named_by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    profile = tmp_path / "prod.toml"
    profile.write_text(f'bootstrap-server = "{BROKERS}"\n')
    profile.chmod(0o600)
    PlanFile(tmp_path / "p.json").write(PLAN)
    env = {"DRAINER_BOOTSTRAP_SERVER": variable}
    found = CliRunner().invoke(app, words, env=env)
    assert f"connects to   {BROKERS}  ({named_by})" in found.stderr


@pytest.mark.parametrize("named", [("--handler", "__main__:Mine"), ()], ids=["", "edited"])
@pytest.mark.parametrize("more", ["", " --yes", " --dry-run"])
def test_no_resume_asks_for_a_class_that_no_command_can_load(
    more: str, named: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    resuming = Resuming((*named, "--concurrency", "5"))
    PlanFile(tmp_path / "p.json").write(changed(PLAN, handler="__main__:Mine", resuming=resuming))
    found = CliRunner().invoke(app, f"{RESUME}{more}")
    words = " ".join(found.stderr.split())
    assert found.exit_code == 2
    assert "no command can load the handler __main__:Mine" in words
    call = "drainer.resume('p.json', client=…, handler=Mine, settings=drainer.LocalSettings("
    assert f"To resume it: `{call}concurrency=5))` (in the program that defines Mine)" in words
    assert words.endswith("put the class into a file, and add --handler FILE.py:Mine")
    assert "connects to" not in words
