"""Spark sessions as drainer needs them: the settings that its laws depend on, and no others."""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import socket
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from py4j import java_gateway  # type: ignore[import-untyped]
from py4j.java_gateway import JavaGateway  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from drainer.errors import DrainerError, Refused
from drainer.extensions import ensure_installed
from drainer.secret import hides
from drainer.spark.session.failure import spark_failures
from drainer.spark.session.session import Session
from drainer.spark.session.settings import (
    SparkLook,
    SparkSettings,
    check_conf,
    java_for_spark,
    shown_master,
)
from drainer.spark.session.slots import GROW_TO, Slots

LOCAL = "local[2]"
_LOGGING = Path(__file__).with_name("log4j2.properties")

# On one machine the JVM competes with the workers for its cores. All it does is to move rows, and
# making code for that takes more than it gains; nor is there a network to save bytes for.
LOCAL_CONF = {
    "spark.ui.enabled": "false",
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
}
# Nor are Spark's own classes verified, of which it loads thousands; nor is the heap collected each
# time that these need more room.
LOCAL_JAVA = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=256m"
    " -XX:+IgnoreUnrecognizedVMOptions -XX:+UnlockDiagnosticVMOptions"
    " -XX:-BytecodeVerificationRemote"
)
# Spark starts its workers by ``python -m`` in the working folder, which may be another user's.
IMPORTS_NOTHING_HERE: dict[str, Any] = {"spark.executorEnv.PYTHONSAFEPATH": "1"}
_DIR, _DIRS = "spark.local.dir", "SPARK_LOCAL_DIRS"
_PRINTED_EACH_TIME = "WARNING: Using incubator modules"
_LOCAL = re.compile(r"local(\[(\d+|\*)(, *\d+)?\])?")
_AT = re.compile(r"(?:k8s|spark)://(?:https?://)?([^/]+)")
RETRIES = 4  # of a call to a server, for some five seconds
ANSWER_S = 4.0  # without an answer of Spark's: then what is waited for is printed
REACH_S = 3.0  # for a master to take a connection

T = TypeVar("T")
PrintLine = Callable[[str], None]


@contextmanager
def session_on(
    look: SparkLook,
    name: str,
    conf: Mapping[str, str] | None = None,
    *,
    print_line: PrintLine = lambda text: None,
    log: str = "off",
) -> Iterator[Session]:
    """The session that runs in this process, as it is, or a new one that ends with the block.

    ``conf`` is what a new one is begun with, unless the look has others. ``print_line`` gets a line
    when Spark has not answered for some seconds. Raises UsageError and Refused as ``spark_session``
    does, and Refused when no master answers.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        session = Session.of(running)
        session.ensure(look.conf)
        yield session
        return
    if look.is_remote:
        yield from _on_server(look, name, print_line)
        return
    conf = {**(conf or {}), **(LOCAL_CONF if look.is_local else {}), **look.conf}
    _ensure_master(look.master)
    gateways: list[JavaGateway] = []

    def start() -> SparkSession:
        java = LOCAL_JAVA if look.is_local else ""
        return _started(look.master, name, conf, log, java, gateways.append)

    with spark_failures():
        try:
            why = f"Spark on {look.master} is still starting"
            spark = interruptible(start, lambda: why, print_line)
        except KeyboardInterrupt:
            for gateway in gateways:  # what is requested meanwhile is answered by an error
                gateway.proc.kill()
            raise
    try:
        yield Session(spark)
    finally:
        # A call that Ctrl-C tears would get the answer to another one.
        with suppress(DrainerError), spark_failures():
            interruptible(spark.stop, interrupted=lambda: None)


def _on_server(look: SparkLook, name: str, print_line: PrintLine) -> Iterator[Session]:
    """A session on a server of Spark Connect."""
    ensure_installed("connect", "Spark Connect")
    from pyspark.sql.connect.client.retries import DefaultPolicy  # noqa: PLC0415 - of the extra

    builder = SparkSession.builder.remote(look.master).appName(name)
    for setting, value in look.conf.items():
        builder = builder.config(setting, value)
    with spark_failures():
        why = f"the server at {shown_master(look.master)} does not answer yet"
        spark = interruptible(builder.getOrCreate, lambda: why, print_line)
    # Else calls to a server that is gone are repeated for ten minutes. The error is enough then.
    warnings.filterwarnings("ignore", r"\[RETRIES_EXCEEDED\]")
    spark.client.set_retry_policies([DefaultPolicy(max_retries=RETRIES)])
    try:
        yield Session.of(spark)
    finally:
        with suppress(DrainerError), spark_failures():
            spark.stop()


@contextmanager
def drain_session(
    settings: SparkSettings, spark: SparkSession | None, drain_id: str, print_line: PrintLine
) -> Iterator[tuple[Session, Slots]]:
    """The session that a drain is given, or one as ``session_on``; and its slots."""
    with ExitStack() as opened:
        if spark is None:
            started = session_on(settings, f"drainer {drain_id}", print_line=print_line)
            session = opened.enter_context(started)
        else:
            session = Session.of(spark)

        def slots() -> Slots:
            opened.enter_context(session.draining())
            grows = session.conf("spark.dynamicAllocation.enabled") == "true"
            to_come = 0 if settings.is_local else settings.cores or GROW_TO
            return Slots(session.slots(), settings.tasks, grows, to_come)

        with spark_failures():
            found = interruptible(slots)
        given = session.conf("spark.default.parallelism")
        if given and settings.tasks is None and not session.is_remote:
            print_line(
                f"{given} tasks are taken to run at once, by spark.default.parallelism: "
                "give --tasks if there are fewer cores"
            )
        yield session, found


def interruptible(
    call: Callable[[], T],
    why: Callable[[], str] = str,
    print_line: PrintLine = lambda text: None,
    interrupted: Callable[[], object] | None = None,
) -> T:
    """Return the result of a call of Spark's, made in another thread: so Ctrl-C is a
    KeyboardInterrupt here, where nothing of py4j's is torn by it; or ``interrupted`` is called.

    ``print_line`` is given what ``why`` gives whenever that has changed, first after ``ANSWER_S``.
    """
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=run, name="spark-call", daemon=True).start()
    printed = ""
    while True:
        try:
            return answer.result(ANSWER_S)
        except TimeoutError:
            if answer.done():
                raise
        except KeyboardInterrupt:
            if interrupted is None:
                raise
            interrupted()
        if (text := why()) != printed:
            print_line(text)
            printed = text


def _ensure_master(master: str) -> None:
    """Raises Refused when nothing listens there: Spark itself would try for a minute."""
    found = _AT.match(master)
    failed: OSError | None = None
    for place in found[1].split(",") if found else ():
        host, _, port = place.rpartition(":")
        if not port.isdecimal():
            return  # Spark reports what is wrong with it
        try:
            socket.create_connection((host.strip("[]"), int(port)), REACH_S).close()
        except OSError as error:
            failed = error
        else:
            return
    if failed is not None:
        raise Refused(
            f"Spark's master does not answer at {master}: {failed}",
            hint="Use the URL that the master's web page shows.",
        )


def spark_session(
    master: str = LOCAL,
    name: str = "drainer",
    conf: Mapping[str, str] | None = None,
    *,
    log: str = "error",
    java: str = "",
) -> SparkSession:
    """A session on a master, with the settings that drainer depends on; stop it when done.

    Workers run the Python that this runs in, unless ``spark.pyspark.python`` names another, or else
    the variable ``PYSPARK_PYTHON``: on a cluster that is the one of the environment that is sent
    along. ``log`` is from which level on Spark writes to stderr (``off`` for nothing), ``java`` are
    options of the driver's JVM.

    Raises:
        UsageError: when ``conf``, or a session that runs already, has what drainer depends on set
            to something else.
        Refused: when there is no Java for it.
    """
    chosen = {"spark.sql.execution.arrow.pyspark.enabled": "true", **(conf or {})}
    spark = _started(master, name, chosen, log, java)
    for key, value in chosen.items():  # of one that was there, too
        if spark.conf.isModifiable(key):
            spark.conf.set(key, value)
    return spark


def _started(
    master: str,
    name: str,
    chosen: Mapping[str, str],
    log: str,
    java: str,
    launched: Callable[[JavaGateway], object] = lambda gateway: None,
) -> SparkSession:
    """The session of this process, which is begun when there is none."""
    check_conf(chosen)
    java_for_spark()
    settings = {
        "spark.pyspark.python": os.environ.get("PYSPARK_PYTHON", sys.executable),
        "spark.pyspark.driver.python": sys.executable,
        "spark.ui.showConsoleProgress": "false",  # the terminal is drainer's
        "spark.driver.defaultJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"
        f" -Ddrainer.spark.log={chosen.get('spark.log.level', log)} {java}".rstrip(),
        "spark.speculation": "false",
    }
    if sys.path[0] not in ("", str(Path.cwd())):  # else a program imports from there
        settings |= IMPORTS_NOTHING_HERE
    if master.startswith("local"):  # no other machine has to reach the driver
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if _LOCAL.fullmatch(master):  # nor has any other user of the machine; Spark makes the secret
        settings["spark.authenticate"] = "true"
    settings |= chosen
    settings.pop("spark.log.level", None)  # Spark would print it, after what comes before it
    spark = SparkSession.getActiveSession()
    if spark is None:
        with _environment(master, settings):
            spark = _begin(master, name, settings, launched)
    # One that was there before keeps what it was begun with.
    check_conf(dict(spark.sparkContext.getConf().getAll()))
    logging.getLogger().addFilter(_is_not_of_py4j)
    return spark


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    is_its = record.pathname == java_gateway.__file__  # it logs in the name of the root logger
    return not is_its


def _begin(
    master: str, name: str, settings: Mapping[str, str], launched: Callable[[JavaGateway], object]
) -> SparkSession:
    conf = SparkConf(loadDefaults=False).setMaster(master).setAppName(name)
    conf.setAll(list(settings.items()))
    gateway = None
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # else spark-submit has started the JVM
        # Whoever lists processes sees their arguments, so no secret is among these.
        shown = [(key, value) for key, value in settings.items() if not hides(key, value)]
        gateway = _launch(SparkConf(loadDefaults=False).setAll(shown))
        launched(gateway)
    if _LOCAL.fullmatch(master) and _DIRS not in os.environ:
        conf.set(_DIR, _private(settings.get(_DIR) or tempfile.gettempdir()))
    SparkContext(conf=conf, gateway=gateway)
    return SparkSession.builder.getOrCreate()


def _private(folders: str) -> str:
    """Make a folder of this user alone in each of these; the end of the process removes it.

    Spark keeps blocks of messages there, for all users to read. Raises Refused.
    """
    made = []
    for folder in folders.split(","):
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            made.append(tempfile.mkdtemp(prefix="drainer-spark-", dir=folder))
        except OSError as error:
            raise Refused(
                f"can't make a folder for Spark in {folder}: {error.strerror}",
                hint=f"Set {_DIR} to a folder that you may write to.",
            ) from None
        atexit.register(shutil.rmtree, made[-1], ignore_errors=True)
    return ",".join(made)


def _launch(conf: SparkConf) -> JavaGateway:
    # The JVM is in a session of its own: what a terminal or a supervisor sends to a whole group of
    # processes reaches this one alone, which then stops the JVM when its tasks are at rest.
    reading, writing = os.pipe()
    threading.Thread(target=_pass_on, args=(reading,), name="jvm-stderr", daemon=True).start()
    try:
        return launch_gateway(conf, {"start_new_session": True, "stderr": writing})  # type: ignore[no-untyped-call]
    finally:
        os.close(writing)


def _pass_on(pipe: int) -> None:
    """Copy what the JVM writes to stderr, without what it prints each time."""
    with open(pipe, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if not line.startswith(_PRINTED_EACH_TIME):
                sys.stderr.write(line)
                sys.stderr.flush()


@contextmanager
def _environment(master: str, settings: Mapping[str, str]) -> Iterator[None]:
    # Only spark-submit uses the settings of these; a session goes by the environment, and without
    # it by whatever python3 comes first on the path.
    variables = {
        "PYSPARK_PYTHON": settings["spark.pyspark.python"],
        "PYSPARK_DRIVER_PYTHON": settings["spark.pyspark.driver.python"],
    }
    if _LOCAL.fullmatch(master) and (named := os.environ.get(_DIRS)):
        variables[_DIRS] = _private(named)  # it goes before the setting
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
