"""Meaning of answers to the handler ``http``; without a service."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drainer.errors import UsageError
from drainer.handler import GiveUp, Retry, Skip
from drainer.http.protocol import (
    Response,
    ServiceError,
    UnclearAnswer,
    ensure_single_done,
    meanings_of,
    results_of,
)
from drainer.policy.fault import Fault, as_retry, fault_of

EMPTY = {"Content-Length": "0"}
IDS = ["a", "b", "c"]
verdicts = st.sampled_from(["done", "retry", "skip", "give-up", "fail", "ok", 1])
entries = st.fixed_dictionaries(
    {"id": st.sampled_from([*IDS, "d"]), "result": verdicts},
    optional={"after": st.sampled_from([0, 1.5, -1, "2"]), "text": st.text(max_size=3)},
)
bodies = st.one_of(
    st.permutations(IDS).flatmap(
        lambda ids: st.tuples(
            *(st.fixed_dictionaries({"id": st.just(each), "result": verdicts}) for each in ids)
        ).map(list)
    ),
    st.lists(entries, max_size=5),
).map(lambda found: json.dumps({"results": found}).encode())


def json_of(body: Any, status: int = 200) -> Response:
    return Response(status, "application/json", json.dumps(body).encode())


@given(body=bodies | st.binary(max_size=20), status=st.sampled_from([200, 201, 204, 302, 404, 503]))
def test_any_answer_finishes_exactly_what_it_lists_or_nothing(body: bytes, status: int) -> None:
    response = Response(status, "application/json", body)
    try:
        found = results_of(response, IDS, {})
    except (ServiceError, UnclearAnswer):
        return
    listed = {each["id"]: each["result"] for each in json.loads(body)["results"]}
    assert 200 <= status < 300
    assert listed.keys() == set(IDS)
    assert [each is None for each in found] == [listed[each] == "done" for each in IDS]


def test_a_result_is_what_a_handler_would_have_raised() -> None:
    each = [("retry", Retry), ("skip", Skip), ("give-up", GiveUp)]
    answer = [
        {"id": id, "result": kind, "text": "why"} for id, (kind, _) in zip(IDS, each, strict=True)
    ]
    answer[0]["after"] = 2  # type: ignore[assignment]
    found = results_of(json_of({"results": answer}), IDS, {})
    assert [(type(one), str(one)) for one in found] == [(kind, "why") for _, kind in each]
    assert isinstance(found[0], Retry)
    assert found[0].after == 2


@pytest.mark.parametrize("response", [Response(204), Response(200, headers=EMPTY)], ids=str)
def test_an_answer_without_a_body_finishes_a_batch_only_if_an_option_says_so(
    response: Response,
) -> None:
    with pytest.raises(UnclearAnswer, match="answer JSON with the result of each id") as caught:
        results_of(response, IDS, {})
    assert fault_of(caught.value) is Fault.UNCLEAR
    assert results_of(response, IDS, {response.status: "done"}) == [None] * len(IDS)


@pytest.mark.parametrize(
    "response",
    [
        Response(204),
        Response(200, headers=EMPTY),
        Response(200, "text/html", headers=EMPTY),
        json_of({"results": [{"id": "in a body of the service's own"}]}),
        json_of({"anything": 1}),
        json_of(None, 201),
        json_of({"result": "done"}),
    ],
    ids=str,
)
def test_a_single_call_is_done(response: Response) -> None:
    ensure_single_done(response, {})


@pytest.mark.parametrize(
    ("response", "error"),
    [
        (Response(200, "text/html", b"<p>Sign in"), UnclearAnswer),
        (Response(200, "application/json", b"{"), UnclearAnswer),
        (Response(200, "application/json"), UnclearAnswer),
        (json_of({"results": [{"id": "a", "result": "fail"}]}), UnclearAnswer),
        (json_of({"result": "perhaps"}), UnclearAnswer),
        (json_of({"result": "retry"}), Retry),
        (json_of({"result": "skip"}), Skip),
        (Response(302), ServiceError),
        (Response(404), ServiceError),
        (Response(503), ServiceError),
    ],
    ids=str,
)
def test_a_single_call_is_not_done(response: Response, error: type[Exception]) -> None:
    with pytest.raises(error):
        ensure_single_done(response, {})


@pytest.mark.parametrize(
    ("status", "fault"),
    [
        (302, Fault.UNCLEAR),
        (413, Fault.OWN),
        (422, Fault.OWN),
        (500, Fault.UNCLEAR),
        (503, Fault.DOWNSTREAM),
    ],
)
def test_whose_fault_an_error_is_depends_on_the_status(status: int, fault: Fault) -> None:
    with pytest.raises(ServiceError) as caught:
        ensure_single_done(Response(status), {})
    assert fault_of(caught.value) is fault


def test_retry_after_sets_the_time() -> None:
    with pytest.raises(ServiceError) as caught:
        ensure_single_done(Response(503, headers={"Retry-After": "7"}), {})
    retry = as_retry(caught.value)
    assert retry is not None
    assert retry.after == 7


def test_options_change_what_a_status_means() -> None:
    meanings = meanings_of(
        {"409": "done", "404": "skip", "500": "retry", "422": "give-up", "418": "outage"}
    )
    ensure_single_done(Response(409), meanings)
    for status, error in ((404, Skip), (500, Retry), (422, GiveUp)):
        with pytest.raises(error):
            ensure_single_done(Response(status), meanings)
    with pytest.raises(ServiceError) as caught:
        ensure_single_done(Response(418), meanings)
    assert caught.value.is_outage
    with pytest.raises(UsageError, match="404=perhaps"):
        meanings_of({"404": "perhaps"})


def test_the_openapi_document_is_the_generated_one() -> None:
    generate = runpy.run_path(str(Path(__file__).parents[2] / "docs/generate.py"))
    assert generate["OPENAPI"].read_text() == generate["openapi_text"]()
