"""Brings errors from a task to the driver, although Spark passes on only the text of an error."""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from drainer import errors
from drainer.errors import DrainerError, Interrupted, UsageError
from drainer.spark.session.settings import SEND_ALONG
from drainer.text.secret import redact

_MARK = "drainer-error "  # It stands before the JSON of an error in a text.
_TRACE_MOST = 6000  # This many characters of a traceback are kept, from its end.
_JVM_STACK = "\n\nJVM stacktrace:\n"  # PySpark appends this to the text of an error.
_LINE_MOST = 300  # This many characters of a text from Spark are shown.
_CLOSED = "Channel closed"  # The client of Spark Connect raises this when its session was stopped.

# Texts that Spark puts before the text that says what happened.
_BEFORE = re.compile(
    r"^(?:Job aborted due to stage failure: "
    r"|Task \d+ in stage [\d.]+ failed \d+ times?, most recent failure: "
    r"|Lost task [\d.]+ in stage [\d.]+ \(TID \d+\)(?: \([^)]*\))?: "
    r"|(?:[a-z][\w$]*\.)+[A-Z][\w$]*(?:Exception|Error): "
    r"|\[[A-Z_.]+\] "
    r"|An exception was thrown from the Python worker: "
    r"|Py4JJavaError: |An error occurred while calling [\w$.]+:? )"
)
_FRAME = re.compile(r'^\s+File "([^"]+)", line (\d+), in ')
# What a daemon printed that ended before it forked a worker.
_PRINTED = re.compile(r"^Error from python worker:\n((?: .*\n)+)", re.MULTILINE)
_RAISED = re.compile(r"^[A-Za-z_][\w.]*(?:: |$)")
_DETAILS = re.compile(r'^\s*details = "(.+)"$', re.MULTILINE)  # An error of gRPC has this line.


class SparkBroke(DrainerError):
    """Raised when a process of Spark crashed, or ran out of memory or disk."""


# Each entry has symptoms in Spark's words, the error to raise, its message, in which {} stands for
# Spark's own, and the hint. The first entry whose symptoms are found counts.
_KNOWN: tuple[tuple[str, type[DrainerError], str, str], ...] = (
    (
        "Python worker exited unexpectedly",
        SparkBroke,
        "a Python worker of Spark died",
        "If it was out of memory, lower the load, or raise spark.executor.memoryOverhead (cluster)."
        " Check that the handler does not end it.",
    ),
    (
        "Cannot run program|PYTHON_VERSION_MISMATCH",
        UsageError,
        "Spark's workers have no such Python: {}",
        "Set spark.pyspark.python to one that each executor has, of the driver's version.",
    ),
    (
        r"No module named '?drainer['.]|on <module 'drainer\.",
        UsageError,
        "the Python of Spark's workers lacks drainer, or has another version: {}",
        "Install the driver's version there, or set spark.pyspark.python to a Python that has it.",
    ),
    ("No module named ", UsageError, "an executor lacks a module: {}", SEND_ALONG),
    (
        "All masters are unresponsive",
        SparkBroke,
        "Spark's master does not answer: {}",
        "Check that it is up, and that its Spark version is the same.",
    ),
    (
        "java.lang.OutOfMemoryError",
        SparkBroke,
        "Spark's JVM is out of memory: {}",
        "Raise spark.driver.memory, and on a cluster spark.executor.memory.",
    ),
    (
        "ExecutorLostFailure|has failed the maximum allowable number of times",
        SparkBroke,
        "Spark lost an executor, again and again: {}",
        "See the cluster's log. If it was out of memory, raise spark.executor.memoryOverhead.",
    ),
    (
        "stopped SparkContext",
        SparkBroke,
        "Spark has stopped: {}",
        "See the log of the cluster's workers. If executors don't start, change their Python,"
        " memory or cores with --spark-conf.",
    ),
    (
        "JAVA_GATEWAY_EXITED",
        SparkBroke,
        "Spark's JVM did not start",
        "Read its output above. Check that JAVA_HOME is Java 17 or later, and check --spark-conf.",
    ),
    ("No space left on device", SparkBroke, "Spark: {}", "Set spark.local.dir to a larger disk."),
    (
        f"SESSION_CLOSED|StatusCode.UNAVAILABLE|{_CLOSED}",
        SparkBroke,
        "the session on the server of Spark Connect is gone: {}",
        "Check that the server is up.",
    ),
    (
        "SparkContext was shut down|SPARK_JOB_CANCELLED|OPERATION_CANCELED",
        Interrupted,
        "Spark: {}",
        "Repeat the command. Check whether someone ended it in Spark's UI.",
    ),
)


class Carried(Exception):
    """Raised in a task for a drainer error, whose fields it carries as JSON in its text."""

    def __init__(self, error: DrainerError) -> None:
        fields = error_as_json(error)
        text = str(error) if error.hint is None else f"{error}\nhint: {error.hint}"
        super().__init__(f"{text}\n{_MARK}{json.dumps(fields)}")


def restated(error: DrainerError, text: str, hint: str | None) -> DrainerError:
    """Return an error of the same class with another text, which may have several lines."""
    shown = type(error)(text, hint=hint)
    shown.args = (text,)  # The constructor escapes line breaks.
    return shown


def error_as_json(error: DrainerError) -> dict[str, Any]:
    """Return an error as JSON, from which ``error_of`` makes it again."""
    return {
        "class": next(cls.__name__ for cls in type(error).__mro__ if hasattr(errors, cls.__name__)),
        "message": str(error),
        "hint": error.hint,
        "cause": _trace(error.__cause__ or error),
    }


def error_of(fields: Mapping[str, Any]) -> DrainerError:
    """Return an error made from the JSON that ``error_as_json`` returned.

    Raises LookupError, TypeError or AttributeError if the JSON is something else.
    """
    cause = None if fields["cause"] is None else TaskFailure(fields["cause"])
    error: DrainerError = getattr(errors, fields["class"])(
        fields["message"], hint=fields["hint"], cause=cause
    )
    return error


class TaskFailure(Exception):
    """Takes the place of an error's cause. Its text is the traceback that the task reported."""

    def __init__(self, trace: str) -> None:
        super().__init__(f"in a task on Spark:\n{trace}")


@contextmanager
def carrying() -> Iterator[None]:
    """Raise ``Carried`` for a drainer error, so that the driver can restore the error."""
    try:
        yield
    except DrainerError as error:
        raise Carried(error) from None


@contextmanager
def spark_failures() -> Iterator[None]:
    """Turn an error that Spark raises on the driver into one of drainer's errors."""
    try:
        yield
    except (PySparkException, Py4JError, ConnectionError, ValueError) as raised:
        if isinstance(raised, ValueError) and _CLOSED not in str(raised):
            raise
        error = failure_of(raised)
        raise error from error.__cause__


def failure_of(raised: BaseException) -> DrainerError:
    """Return the error that a task raised, or else an error with Spark's message in one line.

    A drainer error has the class, text and hint that it had in the task. Its cause is a
    ``TaskFailure``.
    """
    if isinstance(raised, DrainerError):
        return raised
    text = redact(_text_of(raised))
    found = _carried(text)
    if found is not None:
        return found
    line = _message(text)
    cause = TaskFailure(text[-_TRACE_MOST:])
    for symptoms, kind, message, hint in _KNOWN:
        if re.search(symptoms, text):
            return kind(message.replace("{}", line), hint=hint, cause=cause)
    if isinstance(raised, ConnectionError | Py4JError) and not isinstance(raised, Py4JJavaError):
        return SparkBroke(
            f"Spark's JVM is gone: {line}",
            hint="Read its output above. Check if the system killed it, for example for memory.",
            cause=cause,
        )
    return DrainerError(f"it failed on Spark: {line}", cause=cause)


def _trace(cause: BaseException | None) -> str | None:
    if cause is None:
        return None
    trace = redact("".join(traceback.format_exception(cause)))
    return trace if len(trace) <= _TRACE_MOST else f"…{trace[-_TRACE_MOST:]}"


def _text_of(raised: BaseException) -> str:
    """Return the whole text of an error; the name of its class if the JVM with the text is gone."""
    if isinstance(raised, Py4JJavaError):
        try:
            return str(raised.java_exception.toString())
        except (Py4JError, OSError):
            return type(raised).__name__
    return str(raised).partition(_JVM_STACK)[0] or type(raised).__name__


def _carried(text: str) -> DrainerError | None:
    for mark in re.finditer(_MARK, text):
        with suppress(ValueError, LookupError, TypeError, AttributeError):
            return error_of(json.JSONDecoder().raw_decode(text, mark.end())[0])
    return None


def _message(text: str) -> str:
    """Return the line with the reason: the line of a Python exception, or else the first line."""
    if printed := _PRINTED.search(text):
        return _short(printed[1].splitlines()[-1].strip())
    _, traced, trace = text.rpartition("Traceback (most recent call last):")
    if traced:
        where = ""
        for line in trace.splitlines():
            if frame := _FRAME.match(line):
                where = f" ({frame[1]}:{frame[2]})"
            elif where and _RAISED.match(line):
                return f"{_short(line)}{where}"
    if details := _DETAILS.search(text):
        return _short(details[1])
    line = next((line for line in text.splitlines() if line.strip()), text).strip()
    while (shorter := _BEFORE.sub("", line)) != line:
        line = shorter
    return _short(line)


def _short(line: str) -> str:
    return line if len(line) <= _LINE_MOST else f"{line[:_LINE_MOST]}…"
