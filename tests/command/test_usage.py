"""Usage errors and refusals before any broker is needed; commands run in this process."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from drainer.cli.app import app
from drainer.store.plan_file import PlanFile
from view import samples

WHAT = "--topic t --group g --handler count -b 127.0.0.1:1"
FIRST, ONLY = """--first "key =~ 'c3-.*'" """, """--only "key =~ 'c3-.*'" """
ON_SPARK = f"run {WHAT} --engine spark"
DEAD_TOPIC = f"run {WHAT} --tune dead-letter-topic=dead"
LIMITS = "limits -b 127.0.0.1:1"
CHANGES = ["set P concurrency=9", "pause P", "unpause P", "stop P", "stop P --now"]
CHANGES += ["resume P --yes", "plan undo P --yes", f"run {WHAT} --yes"]


def run(words: str, plan: Path = Path("p"), **env: str) -> Result:
    given = [str(plan) if word == "P" else word for word in shlex.split(words)]
    found = CliRunner().invoke(app, given, prog_name="drainer", env={"COLUMNS": "200", **env})
    assert (found.exit_code in (0, 7)) == bool(found.stdout), found.output
    return found


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (f"run {WHAT} --first 'payload.customer ='", "--first", ""),
        (f"run {WHAT} --first 'payload.id = 17'", "'= 17'", "Compare with ==: payload.id == 17"),
        (f"run {WHAT} --first 'payload.id == 17 =='", "--first", "Write it like: payload.kind"),
        (f"run {WHAT} --only 'nonsense == 1'", "there is no nonsense: nonsense == 1", ""),
        (f"run {WHAT} {FIRST} {ONLY}", "excludes", ""),
        (f"run {WHAT} --skip 'payload.kind ='", "--skip can't be understood: syntax error", ""),
        (f"run {WHAT} --skip 'kye == 1'", "there is no kye", ""),
        (f"run {WHAT} --concurrency 0", "--concurrency", ""),
        (
            f"run {WHAT} --set nothing",
            "--set",
            "Put the name of the setting and = before the value.",
        ),
        (f"run {WHAT} -X no.such.property=1", "no.such.property", ""),
        (f"run {WHAT} --client-config missing.properties", "missing.properties", ""),
        (f"run {WHAT} --partition -1", "--partition", ""),
        (f"run {WHAT} --on-failure explode", "--on-failure", ""),
        (f"{DEAD_TOPIC} --on-failure skip", "--tune dead-letter-topic", ""),
        (f"run {WHAT} --dry-run --latency 10xs", "10xs", ""),
        (f"estimate {WHAT} --latency 20", "--latency: 20 of what?", "20ms, 20s, 20m"),
        (f"run {WHAT} --rate 200", "--rate '200' is not a rate", "Write 200/s or 200/m."),
        (f"run {WHAT} --rate 0", "--rate '0' is not a rate", "`drainer pause PLAN`"),
        ("set 'my x.json' rate=0", "'0' is not a rate", "`drainer pause 'my x.json'`"),
        (
            "set 'my x.json' handler=x",
            "handler can't change while a drain runs",
            "Use `drainer stop 'my x.json'`, then `drainer resume 'my x.json' --handler …`.",
        ),
        (f"run {WHAT} --broker-limits 50MB", "--broker-limits '50MB' is not a rate", "50MB/s,"),
        (
            f"run {WHAT} --broker-limits 5k/s",
            "--broker-limits '5k/s' is not a rate like 50MB/s",
            "Write it as 50MB/s, 50MB/m or 50MB/h. For sub-messages, use --rate 500/s.",
        ),
        (f"run {WHAT} --rate 5kb/s", "--rate '5kb/s' is not a rate", "--broker-limits 50MB/s"),
        (f"run {WHAT} --until +0", "--until '+0' is not one of end, +N, an offset", ""),
        (f"run {WHAT} --from @2026-03-01T08 --until @2026-03-01T08", "is not before", ""),
        (f"run {WHAT} --from @2026-03-02 --until @2026-03-01 --no-commit", "is not before", ""),
        (f"run {WHAT} --engine process --latency 1ms", "", "Add --dry-run"),
        (f"estimate {WHAT}", "the time that the handler takes", "--latency 10ms"),
        (f"run {WHAT} --deadline tomorrow", "is not a time or a duration", "6h"),
        (f"estimate {WHAT} --latency none.plan.json", "can't read", "Give the plan"),
        (f"{ON_SPARK} --master yarn", "a place to record what is done", ""),
        (f"{ON_SPARK} --master sc://h", "a place to record", ""),
        (f"{ON_SPARK} --spark-conf spark.speculation=true", "twice", ""),
        (f"{ON_SPARK} --spark-conf hidden", "must be NAME=VALUE", ""),
        (f"{ON_SPARK} --spark-conf 'drainer.slice=2 pages'", "not a size", ""),
        (f"{ON_SPARK} --spark-conf drainer.task=4", "no setting drainer.task", "drainer.tasks"),
        (f"{ON_SPARK} --spark-conf spark.submit.pyFiles=none.zip", "does not exist", ""),
        (f"{LIMITS} --bytes 1KiB,,2KiB", "--bytes '' is not a size", ""),
        (f"{LIMITS} --bytes 0", "--bytes 0 is not a message size", ""),
        (f"{LIMITS} --bytes 1KiB,1024", "--bytes has a value twice", ""),
        (f"{LIMITS} --precision 0", "--precision '0' is not a share from 1% to 50%", ""),
        (f"{LIMITS} --precision 0.1%", "--precision '0.1%' is not a share from 1% to 50%", ""),
        (f"{LIMITS} --safe-share 120%", "--safe-share '120%' is not a share from 1% to 100%", ""),
        (f"{LIMITS} --window 2s", "--window 2s is too short", ""),
        (f"{LIMITS} --max-rate inf", "--max-rate 'inf' is not a rate like 50MB/s", ""),
        (f"{LIMITS} --spark-conf spark.speculation=true", "spark.speculation", ""),
    ],
)
def test_options_that_make_no_sense_are_a_usage_error(words: str, error: str, hint: str) -> None:
    found = run(words)
    lines = dict(line.split(": ", 1) for line in found.stderr.splitlines() if ": " in line)
    assert found.exit_code == 2, found.stderr
    assert error in lines["error"]
    assert hint in lines["hint"]
    assert "hidden" not in found.stderr


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    file = PlanFile(tmp_path / "orders.plan.json")
    file.write(samples.plan())
    return file.path


@pytest.mark.parametrize("words", CHANGES)
def test_where_only_reading_is_allowed_nothing_is_changed(plan: Path, words: str) -> None:
    before = plan.read_bytes()
    found = run(words, plan, DRAINER_READ_ONLY="1")
    assert (found.exit_code, "DRAINER_READ_ONLY" in found.stderr) == (3, True)
    assert (plan.read_bytes(), len(list(plan.parent.iterdir()))) == (before, 1)


@pytest.mark.parametrize("words", ["plan show P", "plan history P", "ps"])
def test_where_only_reading_is_allowed_commands_that_look_work(plan: Path, words: str) -> None:
    assert run(words, plan, DRAINER_READ_ONLY="1").exit_code == 0


@pytest.mark.parametrize("words", CHANGES)
def test_where_a_reason_is_required_nothing_is_changed_without_one(plan: Path, words: str) -> None:
    found = run(words, plan, DRAINER_REQUIRE_REASON="1")
    assert (found.exit_code, "--reason" in found.stderr) == (2, True)
