"""Secrets are found in any text, however they are encoded there, and in every process."""

from __future__ import annotations

import html
import json
import pickle
import time
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from drainer.errors import HandleFailed, Refused
from drainer.kafka.settings import ClientSettings
from drainer.text.escape import foreign
from drainer.text.mask import describe
from drainer.text.secret import REDACTED, redact, remember, remembered

TOKEN, PASSWORD = 'aB3/+x="y z\\\\é€q😀w%1\n2', "pä:ss word9"
FORMS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "a header": "Authorization: Bearer {}".format,
    "JSON": json.dumps,
    "JSON in UTF-8": lambda secret: json.dumps(secret, ensure_ascii=False),
    "JSON in JSON": lambda secret: json.dumps({"body": json.dumps(secret)}),
    "JSON of PHP": lambda secret: json.dumps(secret).replace("/", "\\/"),
    "a repr": repr,
    "a repr of bytes": lambda secret: repr(secret.encode()),
    "a path of a URL": quote,
    "a part of a URL": lambda secret: quote(secret, safe=""),
    "a query": quote_plus,
    "a query in a query": lambda secret: quote(quote(secret, safe=""), safe=""),
    "HTML": html.escape,
    "base64": lambda secret: b64encode(secret.encode()).decode(),
    "base64 of URLs": lambda secret: urlsafe_b64encode(secret.encode()).decode(),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("secret", [TOKEN, PASSWORD, f"ann:{PASSWORD}"])
def test_a_secret_is_found_in_each_form(secret: str, form: str) -> None:
    remember({"http.token": TOKEN, "http.user": "ann", "http.password": PASSWORD})
    found = redact(f"<{FORMS[form](secret)}>")
    assert REDACTED in found
    assert not any(part in found for part in ("aB3", "ss word", "ss%20word", "YW", "cM"))


@settings(max_examples=settings().max_examples // 2)
@given(st.text(min_size=1), st.sampled_from([*FORMS]), st.text())
def test_whatever_the_secret_is(secret: str, form: str, around: str) -> None:
    secret = secret.strip().strip("\\")
    assume(secret == secret.strip().strip("\\") != "")
    remembered.clear()
    remember({"sasl.password": secret})
    assert REDACTED in redact(f"|{FORMS[form](secret)}|{around}")


def test_logins_of_urls_and_of_registries_are_found_as_they_are_sent() -> None:
    remember({"url": "https://ann:p%40ss-of-url@h/x?a=1&sig=s1gnature", "dsn": "plain"})
    remember({"schema.registry.basic.auth.user.info": "bob:of-the-registry"})
    for sent in ("ann:p@ss-of-url", "bob:of-the-registry"):
        assert redact(f"Basic {b64encode(sent.encode()).decode()}").startswith(f"Basic {REDACTED}")
    assert "nature" not in redact("https://h/x?sig=s1gnature")
    assert redact("plain") == "plain"


def test_percent_signs_of_a_secret_are_found_however_often_they_were_quoted() -> None:
    for secret in ("100%%-sure%25of", "%%%%%%%%x", "pw%2Fpw%252Fpw"):
        remember({"sasl.password": secret})
        sent = secret
        for _ in range(3):
            assert redact(f"in {sent} out") == f"in {REDACTED} out"
            sent = quote(sent, safe="")


def test_a_short_secret_is_no_part_of_a_word() -> None:
    remember({"sasl.password": "kafka"})
    assert redact("kafka: mykafka2") == f"{REDACTED}: mykafka2"


def test_options_of_a_handler_are_secret_if_they_look_so() -> None:
    options = {"api_token": "t0k3n-t0k3n", "split_by": "customer_id", "auth": "Zx9" * 9}
    remember(options, chosen=True)
    assert redact("t0k3n-t0k3n customer_id") == f"{REDACTED} customer_id"
    assert redact("Zx9" * 9) == REDACTED


def test_no_error_has_a_secret_nor_a_part_of_one_that_was_cut() -> None:
    remember({"http.token": TOKEN})
    echo = ValueError(f"the answer: {TOKEN} of")
    error = HandleFailed(f"at 0: {TOKEN}", hint="Look.", cause=echo)
    assert "aB3" not in f"{error}{describe(error)}{describe(echo)}"
    for length in range(2_100):
        assert "aB3" not in foreign("x" * length + TOKEN)


def test_settings_that_come_to_another_process_bring_their_secrets() -> None:
    sent = pickle.dumps(ClientSettings("h:1", {"sasl.password": "hush-of-kafka"}))
    remembered.clear()  # as in a task on Spark
    settings = pickle.loads(sent)
    assert "hush" not in str(Refused("rejected: hush-of-kafka"))
    assert "hush" not in repr(settings)


def test_a_hostile_text_takes_no_time() -> None:
    remember({"http.token": TOKEN, "http.user": "ann", "http.password": "/\\\\a%2F%%" * 9})
    remember({"sasl.password": "%" * 30 + "x"})
    started_s = time.process_time()
    for piece in ("\\", "/", "%", "%25", "aB3/", "\\\\u", "&quot;", "a"):
        redact(piece * 100_000)
        redact(f"{TOKEN[:-1]}{piece}" * 10_000)
    assert time.process_time() - started_s < 20
