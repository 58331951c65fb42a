"""Faults: whether an error is the message's own, the downstream's, or unclear.

Errors of libraries are known by their names, so that no library has to be imported. The most
specific class decides. If the outer error is unclear, its cause decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum
from errno import EHOSTDOWN, EHOSTUNREACH, ENETDOWN, ENETUNREACH, ETIMEDOUT
from typing import Any

from drainer.errors import RecordUnsure, ValueNotShipped
from drainer.handler import Fatal, GiveUp, Retry, Skip
from drainer.host.os_errors import is_of_machine
from drainer.split.splitting import describe_with_line
from drainer.text.mask import CAUSES_MOST, describe

# The time that a service asks to wait is kept within these bounds, because clocks differ and some
# services ask for years.
RETRY_AFTER_LEAST_S, RETRY_AFTER_MOST_S = 0.2, 3600.0


class Fault(Enum):
    """Whose fault an error is, and so what has to change before an attempt can succeed."""

    OWN = "own"
    DOWNSTREAM = "downstream"
    UNCLEAR = "unclear"


# The names of classes, by the first part of their module; "" stands for any module.
_OWN = {
    "builtins": "ValueError TypeError LookupError ArithmeticError AssertionError UnicodeError",
    # These are of DB-API 2.0, for any driver; asyncpg and MongoDB have names of their own.
    "": "DataError IntegrityError",
    "asyncpg": "IntegrityConstraintViolationError",
    "pymongo": "DuplicateKeyError DocumentTooLarge InvalidOperation",
    "bson": "BSONError",
    "requests": "InvalidJSONError",
    "httpx": "DecodingError InvalidURL UnsupportedProtocol",
    "aiohttp": "InvalidURL",
    "msgspec": "MsgspecError",
    "google": "DecodeError EncodeError",
    "avro": "AvroException",
    "fastavro": "SchemaParseException",
    "elastic_transport": "SerializationError",
    "elasticsearch": "SerializationError",
    "opensearchpy": "SerializationError",
    "botocore": "ParamValidationError",
}
_DOWNSTREAM = {
    "builtins": "ConnectionError",
    "socket": "gaierror herror",
    "ssl": "SSLError",
    "httpx": "TransportError",
    "httpcore": "NetworkError TimeoutException ProtocolError ProxyError",
    "aiohttp": "ClientConnectionError ClientPayloadError",
    "requests": "ConnectionError Timeout ChunkedEncodingError",
    "urllib3": "HTTPError",
    "urllib": "URLError",
    "http": "HTTPException",
    "psycopg": "OperationalError",
    "psycopg2": "OperationalError",
    "asyncpg": "PostgresConnectionError ConnectionDoesNotExistError CannotConnectNowError"
    " AdminShutdownError CrashShutdownError TooManyConnectionsError InterfaceError",
    "redis": "ConnectionError TimeoutError BusyLoadingError",
    "elastic_transport": "TransportError",
    "elasticsearch": "ConnectionError",
    "opensearchpy": "ConnectionError",
    "botocore": "HTTPClientError ConnectionError EndpointConnectionError",
    "pymongo": "ConnectionFailure",
}
# These classes are derived from classes in the tables above, but leave unclear whose fault it is.
_UNCLEAR = {
    "psycopg": "DeadlockDetected SerializationFailure LockNotAvailable QueryCanceled",
    "psycopg2": "DeadlockDetected SerializationFailure LockNotAvailable QueryCanceled",
    "psycopg_pool": "PoolTimeout TooManyRequests",
    "httpx": "PoolTimeout",
    "urllib3": "EmptyPoolError",
    "redis": "MaxConnectionsError",
    "asyncio": "InvalidStateError",
}
_CLASSES = {
    (package, name): fault
    for fault, table in (
        (Fault.OWN, _OWN),
        (Fault.DOWNSTREAM, _DOWNSTREAM),
        (Fault.UNCLEAR, _UNCLEAR),
    )
    for package, names in table.items()
    for name in names.split()
}
_STATUSES = {
    **dict.fromkeys((400, 404, 409, 410, 413, 415, 422), Fault.OWN),
    **dict.fromkeys((502, 503, 504), Fault.DOWNSTREAM),
}
_GRPC_OWN = (
    "INVALID_ARGUMENT NOT_FOUND ALREADY_EXISTS FAILED_PRECONDITION OUT_OF_RANGE UNIMPLEMENTED"
    " DATA_LOSS"
)
_GRPC = {"UNAVAILABLE": Fault.DOWNSTREAM} | dict.fromkeys(_GRPC_OWN.split(), Fault.OWN)
_NETWORK = (ENETDOWN, ENETUNREACH, EHOSTDOWN, EHOSTUNREACH, ETIMEDOUT)
_RETRY_STATUSES = (408, 425, 429)
# AWS answers 400 where others answer 429.
_THROTTLED = (
    "Throttl",
    "TooManyRequests",
    "ThroughputExceeded",
    "RequestLimitExceeded",
    "SlowDown",
)


class MachineFails(Retry):
    """Replaces an error that is due to this machine, such as a full disk.

    No message or service is to blame for it, so the call is repeated, and nothing is given up.
    """

    def __init__(self, error: OSError) -> None:
        super().__init__(describe(error))
        self.error = error


def blame(
    error: BaseException, is_outage: Callable[[BaseException], bool | None] | None
) -> tuple[Fault, BaseException]:
    """Return whose fault an error of a call is, and the error that the policy decides on.

    The handler's own verdicts come first, then trouble with this machine, then the handler's
    judgement by ``is_outage``. The machine comes before the handler, because a connection may fail
    only because this process has too many open files.
    """
    if isinstance(error, Skip | Retry | Fatal | GiveUp) or not is_retryable(error):
        return Fault.OWN, error
    for each in causes_of(error):
        if is_of_machine(each):
            return Fault.UNCLEAR, MachineFails(each)
    try:
        answer = None if is_outage is None else is_outage(error)
    except Exception as failure:
        return Fault.OWN, Fatal(f"is_outage() failed: {describe_with_line(failure)}")
    if answer is not None:
        return (Fault.DOWNSTREAM if answer else Fault.OWN), error
    try:
        return fault_of(error), as_retry(error) or error
    except Exception:  # An attribute has another meaning than in the libraries known here.
        return Fault.UNCLEAR, error


def is_retryable(error: BaseException) -> bool:
    """Return whether another attempt may have another result.

    Errors of drainer itself would come back in each attempt. An error that is no ``Exception`` asks
    the process to end, unless it is a cancellation.
    """
    if isinstance(error, ValueNotShipped | RecordUnsure):
        return False
    names = ((kind.__module__.partition(".")[0], kind.__name__) for kind in type(error).__mro__)
    return isinstance(error, Exception) or ("asyncio", "CancelledError") in names


def fault_of(error: BaseException) -> Fault:
    """Return whose fault an error is, by its HTTP or gRPC status, its class, or its cause."""
    for each in causes_of(error):
        if isinstance(each, BaseExceptionGroup):
            inner = {fault_of(one) for one in each.exceptions}
            found = inner.pop() if len(inner) == 1 else Fault.UNCLEAR
        else:
            found = _fault(each)
        if found is not Fault.UNCLEAR:
            return found
    return Fault.UNCLEAR


def as_retry(error: BaseException) -> Retry | None:
    """Return the retry that an answer requests: HTTP 408, 425 or 429, or a time to wait.

    Return None for all other errors.
    """
    for each in causes_of(error):
        after_s = _retry_after_s(each)
        status = _status(each)
        if status in _RETRY_STATUSES or after_s is not None or _is_throttled(each):
            return Retry(f"HTTP {status}" if status else type(each).__name__, after=after_s)
        if _fault(each) is not Fault.UNCLEAR:
            return None
    return None


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its chain of causes."""
    each: BaseException | None = error
    for _ in range(CAUSES_MOST):
        if each is None:
            return
        yield each
        each = each.__cause__


def _fault(error: BaseException) -> Fault:
    status = _status(error)
    if status is not None:
        return _STATUSES.get(status, Fault.UNCLEAR)
    code = _call(error, "code")
    if code is not None and hasattr(code, "name"):
        return _GRPC.get(code.name, Fault.UNCLEAR)
    for kind in type(error).__mro__:
        package, name = kind.__module__.partition(".")[0], kind.__name__
        found = _CLASSES.get((package, name)) or _CLASSES.get(("", name))
        if found is not None:
            return found
    if isinstance(error, OSError) and error.errno in _NETWORK:
        return Fault.DOWNSTREAM
    return Fault.UNCLEAR


def _status(error: BaseException) -> int | None:
    """Return the HTTP status of an answer that a client's library raised; None for other errors."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # It is an error of botocore.
        found = _entry(response, "ResponseMetadata", "HTTPStatusCode")
        return found if _is_status(found) else None
    places = [(response, "status_code"), (response, "status")]
    places += [(error, "status_code"), (error, "status"), (error, "code")]
    values = (getattr(where, name, None) for where, name in places)
    return next((value for value in values if _is_status(value)), None)


def _is_status(value: Any) -> bool:
    return isinstance(value, int) and 400 <= value <= 599


def _is_throttled(error: BaseException) -> bool:
    code = str(_entry(getattr(error, "response", None), "Error", "Code"))
    return any(word in code for word in _THROTTLED)


def _entry(value: Any, *path: str) -> Any:
    """Return an entry of nested dicts; None if there is none, or if something is no dict."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _retry_after_s(error: BaseException) -> float | None:
    """Return how many seconds to wait by a ``Retry-After`` header, which has seconds or a date."""
    holders = (getattr(error, "response", None), error)
    headers = next((h for each in holders if (h := getattr(each, "headers", None))), None)
    try:
        text = headers.get("Retry-After") or headers.get("retry-after")  # type: ignore[union-attr]
        if not text:
            return None
        if str(text).strip().isdigit():
            left_s = float(text)
        else:
            left_s = (parsedate_to_datetime(str(text)) - datetime.now(UTC)).total_seconds()
        return min(max(RETRY_AFTER_LEAST_S, left_s), RETRY_AFTER_MOST_S)
    except (AttributeError, TypeError, ValueError):
        return None


def _call(error: BaseException, name: str) -> Any:
    method = getattr(error, name, None)
    try:
        return method() if callable(method) else None
    except Exception:
        return None  # The class only happens to have a method of this name.
