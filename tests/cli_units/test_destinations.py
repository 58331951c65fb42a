"""Destinations that a plan names get no login of the client file, and none is left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest

from builders import changed
from drainer.errors import PlanRefused
from drainer.http.handler import PROPERTIES
from drainer.kafka.settings import EXTENSIONS, ClientSettings
from drainer.model.destinations import LOGINS, destinations, with_own_destinations
from drainer.model.settings import FailureSettings
from drainer.model.terms import PayloadSettings, RedriveSettings, Terms
from drainer.text.secret import redact
from view.samples import plan

PERMISSIONS = Path(__file__).parents[2] / "docs/howto/permissions.md"
EVIL, MINE = "https://evil.example/drain", "https://mine.example/drain"
OF_SERVICE = {"http.token": "t"}
OF_REGISTRY = {"schema.registry.basic.auth.user.info": "me:p"}

# Texts of a plan's terms that name no place beside brokers and topic.
NO_DESTINATIONS = {
    *("drain_id", "created", "cluster_id", "bootstrap_servers", "client_config", "isolation"),
    *("topic", "topic_id", "group", "handler", "order", "handler_code", "limits"),
    *("payloads.split", "payloads.keys", "payloads.barrier", "failures.divert", "failures.skip"),
    *("redrive.letters", "redrive.headers"),
}


def texts(kind: Any, before: str = "") -> Iterator[str]:
    """Names of the fields of a record that hold text, those of its records, too."""
    hints = get_type_hints(kind)
    for each in fields(kind):
        name, found = before + each.name, hints[each.name]
        args = [part for part in get_args(found) if part is not type(None)]
        inner = args[0] if get_origin(found) in (Union, UnionType) else found
        if name in NO_DESTINATIONS:
            yield name
        elif is_dataclass(inner):
            yield from texts(inner, f"{name}.")
        elif inner is str or str in get_args(inner):
            yield name


def terms(**changes: Any) -> Terms:
    return changed(plan(), **changes).terms


def test_each_text_of_a_plan_is_a_destination_or_known_to_be_none() -> None:
    full = terms(
        options={"url": EVIL, "topic": "by-key"},
        payloads=PayloadSettings(value_format="a:v", key_format="a:k", registry=EVIL),
        failures=FailureSettings(dead_letter_topic="dead"),
        redrive=RedriveSettings(to="source"),
    )
    named = {"options", "payloads.value_format", "payloads.key_format", "payloads.registry"}
    named |= {"failures.dead_letter_topic", "redrive.to"}
    assert set(texts(Terms)) == named | NO_DESTINATIONS, (
        "a plan has another text: if it names a place that drainer connects or writes to, add it to"
        " drainer/model/destinations.py and here, and otherwise to NO_DESTINATIONS"
    )
    places = [each.place for each in destinations(full)]
    assert places == [EVIL, "topic=by-key", EVIL, "a:v", "a:k", "dead", "source"]


@pytest.mark.parametrize(
    ("changes", "login", "way"),
    [
        ({"options": {"url": EVIL}}, OF_SERVICE, f"--set url={EVIL}"),
        ({"options": {"to": EVIL}}, {"http.user": "me"}, f"--set to={EVIL}"),
        ({"options": {"url": EVIL}}, {"http.ssl.key.location": "k"}, f"http.url={EVIL}"),
        ({"options": {"url": EVIL}}, {"http.of.a.later.version": "x"}, f"http.url={EVIL}"),
        ({"payloads": PayloadSettings(registry=EVIL)}, OF_REGISTRY, f"--registry {EVIL}"),
    ],
)
def test_a_login_does_not_go_where_only_the_plan_leads(
    changes: Mapping[str, Any], login: Mapping[str, str], way: str
) -> None:
    with pytest.raises(PlanRefused, match="only the plan names") as refused:
        with_own_destinations(terms(**changes), (), login)
    assert way in (refused.value.hint or "")
    assert next(iter(login)) in str(refused.value)


def test_the_client_file_and_the_command_line_come_before_the_plan() -> None:
    known = terms(options={"url": EVIL, "batch": "9"}, payloads=PayloadSettings(registry=EVIL))
    extras = OF_SERVICE | OF_REGISTRY | {"http.url": MINE, "schema.registry.url": MINE}
    found, warnings = with_own_destinations(known, (), extras)
    assert (found.options, found.payloads.registry) == ({"batch": "9"}, None)
    assert len(warnings) == 2
    typed = terms(options={"url": EVIL})
    assert with_own_destinations(typed, ["url"], OF_SERVICE)[0].options == {}
    same = replace(known, options={"url": MINE}, payloads=PayloadSettings(registry=MINE))
    assert with_own_destinations(same, (), extras) == (same, [])


def test_without_a_login_a_plan_may_name_any_place() -> None:
    known = terms(options={"url": EVIL}, payloads=PayloadSettings(registry=EVIL))
    harmless = {"http.ssl.ca.location": "ca.pem", "schema.registry.ssl.ca.location": "ca.pem"}
    assert with_own_destinations(known, (), harmless) == (known, [])
    assert with_own_destinations(known, (), OF_SERVICE | {"http.url": EVIL})[0].options


def test_each_kind_of_login_is_a_prefix_is_redacted_and_has_its_row() -> None:
    assert tuple(LOGINS) == EXTENSIONS
    page = PERMISSIONS.read_text()
    for prefix, kind in LOGINS.items():
        assert f"\n| {kind} | `{prefix}" in page.replace("`sasl.…`, `ssl.key.…`, ", ""), kind
    secrets = [f"http.{name}" for name in PROPERTIES if "password" in name or name == "token"]
    secrets += ["schema.registry.bearer.auth.token", "schema.registry.ssl.key.password"]
    extras = {name: f"value-of-{name}" for name in secrets}
    settings = ClientSettings("b:9092", {}, extras | OF_REGISTRY)
    shown = redact(" ".join(settings.extras.values()))
    assert "value-of" not in shown
    assert "me:p" not in shown
