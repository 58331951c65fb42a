"""Blame for errors: real ones of real libraries where they are at hand."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
import sqlite3
import ssl
import urllib.error
from datetime import UTC, datetime, timedelta
from email.message import Message
from email.utils import format_datetime
from typing import Any

import msgspec
import orjson
import pytest

from drainer.engine.ports import TimedOut
from drainer.policy.fault import Fault, as_retry, fault_of


def raised(function: Any, *args: Any) -> BaseException:
    try:
        function(*args)
    except Exception as error:
        return error
    raise AssertionError("it raised nothing")


def from_library(path: str, *bases: type[BaseException], **fields: Any) -> BaseException:
    """Error of a library that is not installed here."""
    module, _, name = path.rpartition(".")
    kind = type(name, bases or (Exception,), {"__module__": module, **fields})
    error: BaseException = kind("it failed")
    return error


def caused_by(outer: BaseException, cause: BaseException) -> BaseException:
    outer.__cause__ = cause
    return outer


def http(status: int, **headers: str) -> urllib.error.HTTPError:
    message = Message()
    for name, value in headers.items():
        message[name.replace("_", "-")] = value
    return urllib.error.HTTPError("http://x", status, "no", message, None)


PSYCOPG = type("OperationalError", (Exception,), {"__module__": "psycopg"})

OWN = [
    raised(int, "x"),
    raised({}.__getitem__, "x"),
    raised([].__getitem__, 0),
    ZeroDivisionError(),
    TypeError(),
    AssertionError(),
    raised(b"\xff".decode),
    raised(json.loads, "<html>"),
    raised(orjson.loads, "<html>"),
    raised(msgspec.json.decode, b"x", ),
    sqlite3.IntegrityError("CHECK constraint failed"),
    sqlite3.DataError(),
    from_library("asyncpg.exceptions.CheckViolationError", type(
        "IntegrityConstraintViolationError", (Exception,), {"__module__": "asyncpg.exceptions"})),
    from_library("psycopg.errors.CheckViolation", type(
        "IntegrityError", (Exception,), {"__module__": "psycopg"})),
    from_library("pymongo.errors.DuplicateKeyError"),
    *(http(status) for status in (400, 404, 409, 410, 413, 415, 422)),
    caused_by(RuntimeError("could not index"), ValueError("no date")),
    ExceptionGroup("several", [ValueError(), KeyError()]),
]  # fmt: skip
DOWNSTREAM = [
    ConnectionRefusedError(),
    BrokenPipeError(),
    socket.gaierror(),
    ssl.SSLCertVerificationError("expired"),
    OSError(errno.EHOSTUNREACH, "no route"),
    urllib.error.URLError("no"),
    from_library("httpx.ConnectTimeout", type(
        "TransportError", (Exception,), {"__module__": "httpx"})),
    from_library("aiohttp.client_exceptions.ServerDisconnectedError", type(
        "ClientConnectionError", (Exception,), {"__module__": "aiohttp.client_exceptions"})),
    from_library("requests.exceptions.ConnectTimeout", type(
        "ConnectionError", (OSError,), {"__module__": "requests.exceptions"})),
    PSYCOPG("server closed the connection"),
    from_library("asyncpg.exceptions.ConnectionDoesNotExistError"),
    from_library("redis.exceptions.ConnectionError"),
    from_library("elastic_transport.ConnectionTimeout", type(
        "TransportError", (Exception,), {"__module__": "elastic_transport"})),
    from_library("opensearchpy.exceptions.ConnectionError", status_code="N/A"),
    from_library("botocore.exceptions.EndpointConnectionError"),
    from_library("pymongo.errors.AutoReconnect", type(
        "ConnectionFailure", (Exception,), {"__module__": "pymongo.errors"})),
    from_library("grpc.aio.AioRpcError", code=lambda _: type("C", (), {"name": "UNAVAILABLE"})),
    *(http(status) for status in (502, 503, 504)),
    caused_by(RuntimeError("could not index"), ConnectionResetError()),
]  # fmt: skip
UNCLEAR = [
    RuntimeError(),
    Exception(),
    OSError(errno.ENOENT, "no such file"),
    TimeoutError(),
    asyncio.CancelledError(),
    TimedOut(30.0),
    *(http(status) for status in (401, 403, 405, 500)),
    sqlite3.OperationalError("database is locked"),
    from_library("psycopg.errors.DeadlockDetected", PSYCOPG),
    from_library("psycopg_pool.PoolTimeout", PSYCOPG),
    from_library("httpx.PoolTimeout", type(
        "TransportError", (Exception,), {"__module__": "httpx"})),
    from_library("mine.HttpError", status_code=500),
    from_library("mine.Looks", response={"Error": "boom", "ResponseMetadata": None}),
    ExceptionGroup("several", [ValueError(), ConnectionError()]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        *((error, Fault.OWN) for error in OWN),
        *((error, Fault.DOWNSTREAM) for error in DOWNSTREAM),
        *((error, Fault.UNCLEAR) for error in UNCLEAR),
    ],
    ids=lambda each: each.value if isinstance(each, Fault) else type(each).__name__,
)
def test_whose_fault_an_error_is(error: BaseException, fault: Fault) -> None:
    assert fault_of(error) is fault
    assert as_retry(error) is None


def test_causes_that_go_in_a_circle_are_left() -> None:
    first, second = RuntimeError(), RuntimeError()
    first.__cause__, second.__cause__ = second, first
    assert fault_of(first) is Fault.UNCLEAR


class Response:
    def __init__(self, status: int, **headers: str) -> None:
        self.status_code = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


LATER = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)


@pytest.mark.parametrize(
    ("error", "after_s"),
    [
        (http(408), None),
        (http(425), None),
        (http(429), None),
        (http(429, Retry_After="7"), 7.0),
        (http(503, Retry_After="0"), 0.2),
        (http(429, Retry_After="soon"), None),
        (http(503, Retry_After="Mon, 01 Jan 2001 00:00:00 GMT"), 0.2),
        (http(503, Retry_After="9" * 40), 3600.0),
        (from_library("httpx.HTTPStatusError", response=Response(429, retry_after="3")), 3.0),
        (
            from_library(
                "botocore.exceptions.ClientError",
                response={
                    "Error": {"Code": "ThrottlingException"},
                    "ResponseMetadata": {"HTTPStatusCode": 400},
                },
            ),
            None,
        ),
        (caused_by(RuntimeError(), http(429, Retry_After="7")), 7.0),
    ],
)
def test_an_answer_that_requests_a_later_call_is_a_retry(
    error: BaseException, after_s: float | None
) -> None:
    found = as_retry(error)
    assert found is not None
    assert found.after == after_s


def test_an_answer_of_another_shape_is_no_retry() -> None:
    assert as_retry(from_library("mine.Looks", response={"Error": "Throttling"})) is None


def test_the_cause_of_an_error_of_its_own_is_ignored() -> None:
    assert as_retry(caused_by(ValueError(), http(429))) is None


def test_a_date_to_come_back_at_is_a_time_from_now() -> None:
    found = as_retry(http(503, Retry_After=LATER))
    assert found is not None
    assert 0 < (found.after or 0) <= 100
