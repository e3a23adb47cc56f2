"""What is missing on a machine is skipped with a reason; where nothing may be missing, a skip is a failure."""

import os

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


@pytest.fixture(autouse=True)
def no_stated_width(monkeypatch):
    """Runs with several workers state a width of 80 columns, for which tables would be laid out."""
    monkeypatch.delenv("COLUMNS", raising=False)
