"""The command line within the process of the tests: what a process of its own says and returns, without its start.

A process takes two seconds to import what a release needs. Where the process is what is tested (signals, limits,
encodings of a terminal, what is imported), tests start one.
"""

import contextlib
import io
from dataclasses import dataclass

from margrave.cli.app import main


@dataclass(frozen=True)
class Done:
    """What a run of the command line left: its exit code, and what it wrote."""

    returncode: int
    stdout: str
    stderr: str


def command(*words, folder=None, together=False):
    """Run ``margrave`` with these words in a folder, without a terminal, and return what came of it.

    What goes to standard error can come ``together`` with standard output, in the order in which it was written.
    """
    out, errors = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with contextlib.ExitStack() as stack:
        if folder is not None:
            stack.enter_context(contextlib.chdir(folder))
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(out if together else errors))
        try:
            main([str(word) for word in words])
        except SystemExit as end:
            code = end.code
    return Done(code, *(stream.buffer.getvalue().decode("utf-8") for stream in (out, errors)))
