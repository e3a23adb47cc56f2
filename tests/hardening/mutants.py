"""Mutation testing: change one thing in the source, run the tests that reach it, and see whether one of them fails.

    python tests/hardening/mutants.py                      # all rooms, twelve mutants a module
    python tests/hardening/mutants.py --room privacy --sample 25 --seed 2
    python tests/hardening/mutants.py --module prior/levels --tests tests/laws --tests tests/unit/reconstruction
    python tests/hardening/mutants.py --only 'boundary.py:97:+'   # one mutant again, with the output of the tests

It works on a copy of the tracked files in a temporary folder, and goes in two steps. First the tests of all rooms run
once, and `Calls`, a plugin of pytest, notes which functions each test calls and how long it takes. Then each mutant is
written, a process that has the large packages loaded already is forked, and there the tests that call the mutated
function run, the quickest first, until one fails. Compiled loops are not seen by the tracer: for them the tests that
touch their module, or a module that imports it, are taken. What numba has compiled of such modules is forgotten first.
Slow tests, which are mostly statistical, are left out: a mutant must be killed by quick ones.

With ``--interpreted`` loops are not compiled but run as Python. Then the tracer sees them, only the tests that call the
mutated loop are run, and nothing is compiled again; tests that are too slow in this way are left out.

A mutant that makes the tests run out of time counts as killed. What is known to change nothing that could be observed
is listed in ``equivalent.json`` beside this file with its reason, and does not count.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "src/margrave"
ROOMS = {
    "privacy": ["privacy", "discrete_gaussian.py"],
    "boundary": ["boundary.py"],
    "mechanisms": ["mechanisms"],
    "planning": ["planning"],
    "reconstruction": ["reconstruction"],
}
# The tests of what workers do start a cluster, and take too long for this; they are tried if they are named.
NOT_TRIED = ["src/margrave/reconstruction/nonnegative/workers.py"]
TESTS = [
    "tests/privacy",
    "tests/laws",
    "tests/unit/planning",
    "tests/unit/reconstruction",
    "tests/unit/mechanisms",
    "tests/unit/methods",
    "tests/unit/test_notebooks.py",
    "tests/unit/measurements/test_provenance.py",
    "tests/unit/release/test_reconstruct.py",
    "tests/hardening/test_survivors.py",
]
# Statistical ones, slow as a whole.
LEFT_OUT = [
    "tests/privacy/test_audit.py",
    "tests/privacy/test_noise_distribution.py",
    "tests/laws/test_coverage.py",
    "tests/laws/test_count_errors.py",
    "tests/laws/test_count_shares.py",
    "tests/laws/test_intervals.py",
    "tests/laws/test_planned_coverage.py",
    "tests/laws/test_rows.py",
    "tests/laws/test_shares.py",
    "tests/unit/reconstruction/nonnegative/test_workers.py",
]
EQUIVALENT = Path(__file__).with_name("equivalent.json")
# Seconds of tests for one mutant, as they took without it; how many times as much processor time they may take with it,
# beside what it takes to start and compile; and how much longer that may be by the clock, on a busy machine.
MOST_SECONDS, PATIENCE, START, BUSY = 30.0, 3.0, 60.0, 8.0
# Bytes that the tests of one mutant may write to. Addresses are not limited: the engine that draws charts reserves 64
# GiB of them at its start and ends the process where it may not, so that a test of a report would end the record.
MOST_MEMORY = 16 << 30
# What pytest returns for a test that is not there, or if it cannot begin.
UNKNOWN_TEST = 4
# Tests that take more seconds of processor time, while they are watched, are left out.
SLOW = 4.0
SWAPS = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "/", ast.Mod: "*", ast.Pow: "*",
    ast.LShift: ">>", ast.RShift: "<<", ast.BitAnd: "|", ast.BitOr: "&", ast.MatMult: "*",
    ast.And: "or", ast.Or: "and",
}  # fmt: skip
SYMBOLS = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
    ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.LShift: "<<", ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|", ast.MatMult: "@",
    ast.And: "and", ast.Or: "or",
}  # fmt: skip
NAMES = {
    "min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "ceil": "floor", "floor": "ceil",
    "any": "all", "all": "any", "argmin": "argmax", "argmax": "argmin", "zeros": "ones", "ones": "zeros",
    "nextafter": "copysign", "next_plus": "next_minus", "next_minus": "next_plus",
    "ROUND_CEILING": "ROUND_FLOOR", "ROUND_FLOOR": "ROUND_CEILING",
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One change: the file, the place, the text there and what takes its place, and the function around it."""

    file: str
    line: int
    begin: int
    end: int
    before: str
    after: str
    function: str
    around: str
    compiled: bool

    @property
    def place(self) -> str:
        """Where it is in the source as it stands."""
        return f"{self.file}:{self.begin}:{self.after}"

    @property
    def name(self) -> str:
        """What stays the same while lines move: file, function, the change, and the text around it."""
        change = f"{self.before} → {self.after}"
        return f"{self.file.removeprefix(PACKAGE)[1:]}::{self.function}: {change} in: {self.around}"

    def applied(self, source: bytes) -> bytes:
        """Return the source with the change."""
        return source[: self.begin] + self.after.encode() + source[self.end :]


class Mutants(ast.NodeVisitor):
    """Collects every change that can be made in one file."""

    def __init__(self, file: str, source: bytes) -> None:
        self.file, self.source, self.found = file, source, []
        self.starts = [0]
        for line in source.split(b"\n"):
            self.starts.append(self.starts[-1] + len(line) + 1)
        self.inside: list[tuple[str, bool]] = []
        self.visit(ast.parse(source))

    def place(self, line: int, column: int) -> int:
        """Return the offset of a place that the parser names."""
        return self.starts[line - 1] + column

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Return where a node begins and ends."""
        return self.place(node.lineno, node.col_offset), self.place(node.end_lineno, node.end_col_offset)

    def text(self, node: ast.AST) -> str:
        """Return the text of a node."""
        begin, end = self.span(node)
        return self.source[begin:end].decode()

    def add(self, node: ast.AST, begin: int, end: int, after: str) -> None:
        """Note a change, unless it is at the level of the module or in a declaration."""
        if self.inside:
            name, compiled = self.inside[-1]
            before = self.source[begin:end].decode()
            line = self.source[:begin].count(b"\n") + 1
            # The line, with a mark before what is changed.
            first, last = self.source.rfind(b"\n", 0, begin) + 1, self.source.find(b"\n", begin)
            around = f"{self.source[first:begin].decode().lstrip()}¦{self.source[begin:last].decode()}"
            self.found.append(Mutant(self.file, line, begin, end, before, after, name, around, compiled))

    def whole(self, node: ast.AST, after: str) -> None:
        """Note that a whole node is replaced."""
        self.add(node, *self.span(node), after)

    def between(self, node: ast.AST, left: ast.AST, right: ast.AST, operator: ast.AST) -> None:
        """Note that the operator between two nodes is replaced."""
        begin, end = self.span(left)[1], self.span(right)[0]
        gap, symbol = self.source[begin:end].decode(), SYMBOLS.get(type(operator))
        if symbol and gap.count(symbol) == 1:
            place = begin + len(gap[: gap.index(symbol)].encode())
            self.add(node, place, place + len(symbol), SWAPS[type(operator)])

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Visit the body alone: neither annotations nor decorators nor defaults."""
        compiled = any("compiled" in ast.unparse(one) for one in node.decorator_list)
        compiled = compiled or bool(self.inside and self.inside[-1][1])
        outer = f"{self.inside[-1][0]}." if self.inside else ""
        self.inside.append((f"{outer}{node.name}", compiled))
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        for one in body:
            self.visit(one)
        self.inside.pop()

    def visit_If(self, node: ast.If) -> None:
        """Negate a condition, and visit."""
        if ast.unparse(node.test) == "TYPE_CHECKING":
            return
        if not isinstance(node.test, ast.Compare | ast.UnaryOp):
            self.whole(node.test, f"not ({self.text(node.test)})")
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        """Negate the condition of an expression."""
        if not isinstance(node.test, ast.Compare | ast.UnaryOp):
            self.whole(node.test, f"(not ({self.text(node.test)}))")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        """Do not raise; what the message says is tested elsewhere."""
        self.whole(node, "pass")

    def visit_Assert(self, node: ast.Assert) -> None:
        """Leave assertions alone: they state what is always true."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Leave the insides of messages alone."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Visit the value alone."""
        if node.value is not None:
            self.visit(node.value)

    def visit_Expr(self, node: ast.Expr) -> None:
        """Leave out a call whose result is not used."""
        if isinstance(node.value, ast.Call):
            self.whole(node, "pass")
        if not isinstance(node.value, ast.Constant):
            self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """Swap the operator of an assignment such as +=."""
        begin, end = self.span(node.target)[1], self.span(node.value)[0]
        gap, symbol = self.source[begin:end].decode(), SYMBOLS[type(node.op)]
        if gap.count(symbol) == 1:
            place = begin + gap.index(symbol)
            self.add(node, place, place + len(symbol), SWAPS[type(node.op)].replace("//", "/"))
        self.visit(node.value)

    def visit_Return(self, node: ast.Return) -> None:
        """Return nothing; for a truth value the opposite."""
        if node.value is not None:
            truth = isinstance(node.value, ast.Compare | ast.BoolOp) or ast.unparse(node.value) in {"True", "False"}
            if not isinstance(node.value, ast.Constant) and not truth:
                self.whole(node.value, "None")
            self.visit(node.value)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """Swap an arithmetic operator."""
        self.between(node, node.left, node.right, node.op)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """Swap ``and`` and ``or``, and leave out each part."""
        for left, right in zip(node.values, node.values[1:], strict=False):
            self.between(node, left, right, node.op)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        """Move the boundary of a comparison, or turn it round."""
        for left, operator, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
            self.between(node, left, right, operator)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        """Leave out a minus or a not."""
        if isinstance(node.op, ast.Not | ast.USub):
            self.whole(node, f"({self.text(node.operand)})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Change a number or a truth value; texts stay."""
        value = node.value
        if isinstance(value, bool):
            self.whole(node, str(not value))
        elif isinstance(value, int):
            self.whole(node, str(value + 1))
        elif isinstance(value, float):
            self.whole(node, "1.0" if value == 0 else f"{value * 2!r}")

    def visit_Name(self, node: ast.Name) -> None:
        """Swap such names as min and max."""
        if node.id in NAMES and isinstance(node.ctx, ast.Load):
            self.whole(node, NAMES[node.id])

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """Swap such names as minimum and maximum."""
        if node.attr in NAMES:
            end = self.span(node)[1]
            self.add(node, end - len(node.attr.encode()), end, NAMES[node.attr])
        self.generic_visit(node)

    def visit_Break(self, node: ast.Break) -> None:
        """Continue in place of an end."""
        self.whole(node, "continue")

    def visit_Continue(self, node: ast.Continue) -> None:
        """End in place of continuing."""
        self.whole(node, "break")


class Calls:
    """A plugin of pytest that notes which functions of the package each test calls, and how long it takes."""

    def __init__(self, path: Path) -> None:
        self.path, self.records = path, {}
        self.seen: set[object] = set()

    def pytest_sessionstart(self) -> None:
        """Do not look while numba compiles: it calls itself millions of times."""
        from numba.core.dispatcher import Dispatcher

        compile_one = Dispatcher.compile

        def quietly(dispatcher: object, signature: object) -> object:
            tracing = sys.gettrace()
            sys.settrace(None)
            left, _ = signal.setitimer(signal.ITIMER_PROF, 0)
            try:
                return compile_one(dispatcher, signature)
            finally:
                signal.setitimer(signal.ITIMER_PROF, left)
                sys.settrace(tracing)

        def end(number: int, frame: object) -> None:
            raise TimeoutError(f"more than {SLOW} seconds of processor time")

        signal.signal(signal.SIGPROF, end)

        Dispatcher.compile = quietly

    def pytest_runtest_protocol(self, item: object) -> None:
        """Begin to note; pytest goes on with the test."""
        import threading

        self.seen = seen = set()

        def trace(frame: object, event: str, argument: object) -> None:
            seen.add(frame.f_code)

        threading.settrace(trace)
        sys.settrace(trace)
        signal.setitimer(signal.ITIMER_PROF, SLOW)
        self.began = time.monotonic()

    def pytest_runtest_logreport(self, report: object) -> None:
        """Note that a test failed."""
        record = self.records.setdefault(report.nodeid, {"passed": True})
        record["passed"] = record["passed"] and report.outcome == "passed"

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Write down what the test called."""
        sys.settrace(None)
        signal.setitimer(signal.ITIMER_PROF, 0)
        called = {(code.co_filename, code.co_name) for code in self.seen if PACKAGE in code.co_filename}
        record = self.records.setdefault(nodeid, {"passed": True})
        record["seconds"] = time.monotonic() - self.began
        record["called"] = sorted((file[file.rindex(PACKAGE) :], name) for file, name in called)
        if len(self.records) % 50 == 0:
            self.pytest_sessionfinish()

    def pytest_sessionfinish(self) -> None:
        """Write the record."""
        self.path.write_text(json.dumps(self.records))


class Watch:
    """A plugin of pytest that ends the process where one test takes far too much processor time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def pytest_runtest_protocol(self, item: object) -> None:
        """Begin to count; the signal ends even a loop that was compiled."""
        signal.setitimer(signal.ITIMER_PROF, self.seconds)


class Bench:
    """A copy of the project in which mutants are tried."""

    def __init__(self, folder: Path, *, interpreted: bool) -> None:
        self.folder, self.cache, self.interpreted = folder, folder / "numba", interpreted
        self.record = folder / "calls.json"

    def copy(self) -> None:
        """Copy the tracked files, those that are new included."""
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
            cwd=ROOT, capture_output=True, check=True,
        ).stdout  # fmt: skip
        for name in filter(None, listed.decode().split("\0")):
            target = self.folder / "tree" / name
            if (ROOT / name).is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, target)

    def run(
        self,
        arguments: list[str],
        *,
        cache: Path,
        seconds: float,
        output: Path,
        plugin: bool = False,
        one_test: float = 0.0,
    ) -> str:
        """Run pytest in a forked process; return "passed", "failed", "time" or "broken"."""
        child = os.fork()
        if child == 0:
            try:
                os.setsid()
                self._test(arguments, cache, output, plugin, math.ceil(seconds), one_test)
            finally:
                os._exit(70)
        end = time.monotonic() + seconds * BUSY
        while time.monotonic() < end:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                self._sweep(child)
                code = os.waitstatus_to_exitcode(status)
                if code == UNKNOWN_TEST and "ERROR: not found:" in output.read_text(errors="replace"):
                    raise SystemExit(f"the tests have changed since {self.record} was written: remove it")
                return {0: "passed", 1: "failed", 2: "failed", -signal.SIGXCPU: "time", -signal.SIGPROF: "time"}.get(
                    code, "broken"
                )
            time.sleep(0.02)
        self._sweep(child)
        os.waitpid(child, 0)
        return "time"

    def _sweep(self, group: int) -> None:
        """End what the tests of one mutant have left running."""
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)

    def _test(
        self, arguments: list[str], cache: Path, output: Path, plugin: bool, seconds: int, one_test: float
    ) -> None:
        """In the forked process: run pytest in the copy."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        log = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        sys.stdin = open(os.devnull)  # noqa: SIM115, PTH123 — until the process ends
        resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
        tree = self.folder / "tree"
        os.chdir(tree)
        os.environ |= {"NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        sys.path.insert(0, str(tree / "src"))
        import numba
        import pytest

        numba.core.config.CACHE_DIR = str(cache)
        plugins = [Calls(self.record)] if plugin else [Watch(one_test)]
        fixed = ["-q", "-p", "no:cacheprovider", "-m", "not engines", "--hypothesis-seed=0"]
        code = pytest.main([*fixed, *arguments], plugins=plugins)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(code))

    def try_mutant(self, mutant: Mutant, tests: list[str], seconds: float) -> tuple[str, str]:
        """Return what the tests say of a mutant, and the test that failed."""
        path, cache = self.folder / "tree" / mutant.file, self.cache
        source, output = path.read_bytes(), self.folder / "output.txt"
        if b"@compiled" in source and not self.interpreted:
            cache = self.folder / "numba-mutant"
            shutil.rmtree(cache, ignore_errors=True)
            shutil.copytree(self.cache, cache, copy_function=os.link)
            for module in self.importers(mutant.file) if mutant.compiled else [mutant.file]:
                for old in cache.rglob(f"{Path(module).stem}.*"):
                    old.unlink()
        for stale in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            stale.unlink()
        try:
            path.write_bytes(mutant.applied(source))
            result = self.run(
                ["-x", *tests],
                cache=cache,
                seconds=seconds * PATIENCE + START,
                output=output,
                one_test=PATIENCE * SLOW + (START if mutant.compiled else 0),
            )
        finally:
            path.write_bytes(source)
            stamp = (ROOT / mutant.file).stat()
            os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        failed = [
            line for line in output.read_text(errors="replace").splitlines() if line.startswith(("FAILED", "ERROR"))
        ]
        return result, failed[0] if failed else ""

    def importers(self, file: str, *, compiled: bool = True) -> list[str]:
        """Return a module and those that import it: at once or through others, among those with compiled loops; or all.

        Without ``compiled``, of those without compiled loops only the ones that import it at once.
        """
        tree = self.folder / "tree"
        sources = {str(one.relative_to(tree)): one.read_text() for one in (tree / PACKAGE).rglob("*.py")}
        found, new = {file}, [file]
        while new:
            names = module_names(new.pop())
            more = [one for one, text in sources.items() if one not in found and any(name in text for name in names)]
            loops = [one for one in more if "@compiled" in sources[one]]
            found.update(loops if compiled else more)
            new += loops
        return sorted(found)


def module_names(file: str) -> tuple[str, str]:
    """Return the words by which a module is imported: by its whole name, or from its package."""
    dotted = file.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    package, _, own = dotted.rpartition(".")
    return f"from {dotted} import", f"from {package} import {own}"


def chosen_tests(
    mutant: Mutant, records: dict, users: list[str], root: Path, most: float = MOST_SECONDS
) -> tuple[list[str], float]:
    """Return the tests that reach a mutant and how long they took: those about its module first, then the quickest."""

    def calling(wanted: list[str], function: str | None = None) -> set[str]:
        return {
            one
            for one, record in records.items()
            if any(file in wanted and function in (None, name) for file, name in record["called"])
        }

    files = {one.split("::")[0] for one in records}
    named = {one for one in files if any(name in (root / one).read_text() for name in module_names(mutant.file))}
    about = {one for one in records if one.split("::")[0] in named}
    if mutant.compiled:
        reached = about | calling(users)
    else:
        reached = calling([mutant.file], mutant.function.rpartition(".")[2])
        if len(reached) < 3:  # called while a fixture is made, or once and then kept
            reached |= about | calling([mutant.file])
    taken, seconds = [], 0.0
    for one in sorted(reached, key=lambda one: (one not in about, records[one]["seconds"])):
        if records[one]["passed"] and seconds + records[one]["seconds"] <= most:
            taken.append(one)
            seconds += records[one]["seconds"]
    return taken, seconds


def sampled(files: list[str], count: int, seed: int) -> list[Mutant]:
    """Return some mutants of each file, the same for the same seed."""
    chosen = []
    for file in files:
        found = Mutants(file, (ROOT / file).read_bytes()).found
        order = random.Random(f"{seed} {file}").sample(range(len(found)), min(count, len(found)))
        chosen += [found[place] for place in sorted(order)]
    return chosen


def room_files(room: str, named: list[str] | None) -> list[str]:
    """Return the modules of a room that have a function; only those whose path contains one of some texts, if given."""
    files = []
    for part in ROOMS[room]:
        path = ROOT / PACKAGE / part
        files += [path] if path.is_file() else sorted(path.rglob("*.py"))
    names = [str(one.relative_to(ROOT)) for one in files]
    if named is None:
        names = [one for one in names if one not in NOT_TRIED]
    else:
        names = [one for one in names if any(part in one for part in named)]
    return [one for one in names if Mutants(one, (ROOT / one).read_bytes()).found]


def preload() -> None:
    """Load the large packages once, so that a forked process has them; margrave itself is loaded by each."""
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "MARGRAVE_THREADS": os.environ.get("MARGRAVE_THREADS", "2")}
    for name in ("numpy", "scipy.special", "scipy.optimize", "scipy.sparse.linalg", "scipy.stats", "numba", "pytest"):
        __import__(name)
    for name in ("hypothesis", "hypothesis.strategies", "hypothesis.extra.numpy", "pyarrow", "pandas", "mpmath"):
        __import__(name)


def main() -> None:
    """Run the mutants of the rooms asked for, and print one line a mutant and one a room."""
    parser = argparse.ArgumentParser(description="Mutation testing of the rooms that the guarantee depends on.")
    parser.add_argument("--room", action="append", choices=[*ROOMS], help="a room; all of them by default")
    parser.add_argument("--sample", type=int, default=12, help="mutants a module")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--module", action="append", help="only modules whose path contains this text")
    parser.add_argument("--tests", action="append", help="which tests to choose from; those of all rooms by default")
    parser.add_argument("--seconds", type=float, default=MOST_SECONDS, help="how many seconds of tests a mutant gets")
    parser.add_argument("--interpreted", action="store_true", help="run loops as Python instead of compiling them")
    parser.add_argument("--only", help="only mutants whose name contains this text; prints what the tests said")
    parser.add_argument("--folder", type=Path, help="where to work; a record of calls in it is used again")
    parser.add_argument(
        "--results", type=Path, help="a file for one JSON object a mutant; those in it are not tried again"
    )
    options = parser.parse_args()
    # Ended from outside, it leaves no mutant behind in the folder.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    folder = Path(tempfile.mkdtemp(prefix="mutants-")) if options.folder is None else options.folder.resolve()
    bench = Bench(folder, interpreted=options.interpreted)
    if options.interpreted:
        os.environ["NUMBA_DISABLE_JIT"] = "1"
    bench.folder.mkdir(parents=True, exist_ok=True)
    preload()
    bench.copy()
    if not bench.record.exists():
        print("running the tests once, to see what they call …", flush=True)
        tests = [one for one in options.tests or TESTS if (bench.folder / "tree" / one).exists()]
        tests += [f"--ignore={one}" for one in LEFT_OUT if one not in tests]
        output = bench.folder / "calls.txt"
        print(bench.run(tests, cache=bench.cache, seconds=7200, output=output, plugin=True), flush=True)
    records = {one: record for one, record in json.loads(bench.record.read_text()).items() if "called" in record}
    known = json.loads(EQUIVALENT.read_text()) if EQUIVALENT.exists() else {}
    done = {}
    if options.results is not None and options.results.exists():
        rows = map(json.loads, options.results.read_text().splitlines())
        done = {row["place"]: row["outcome"] for row in rows}
    for room in options.room or ROOMS:
        score: dict[str, int] = defaultdict(int)
        for mutant in sampled(room_files(room, options.module), options.sample, options.seed):
            if options.only is not None and options.only not in mutant.name:
                continue
            if mutant.place in done:
                earlier = done[mutant.place]
                score["equivalent" if earlier == "survived" and mutant.name in known else earlier] += 1
                continue
            if options.interpreted:
                mutant = replace(mutant, compiled=False)
            users = bench.importers(mutant.file, compiled=False) if mutant.compiled else []
            tests, seconds = chosen_tests(mutant, records, users, bench.folder / "tree", options.seconds)
            began = time.monotonic()
            result, by = bench.try_mutant(mutant, tests, seconds) if tests else ("passed", "")
            outcome = {"passed": "survived", "failed": "killed", "time": "killed", "broken": "killed"}[result]
            if outcome == "survived" and mutant.name in known:
                outcome = "equivalent"
            score[outcome] += 1
            took = time.monotonic() - began
            print(f"{outcome:10} {took:5.0f} s  line {mutant.line} of {mutant.name}  ({by or result})", flush=True)
            if options.results is not None:
                with options.results.open("a") as file:
                    row = {"room": room, "outcome": outcome, "how": result, "by": by, "line": mutant.line}
                    row |= {"place": mutant.place, "name": mutant.name, "tests": len(tests), "seconds": round(took, 1)}
                    file.write(json.dumps(row, ensure_ascii=False) + "\n")
            if options.only is not None:
                print((bench.folder / "output.txt").read_text())
        counted = score["killed"] + score["survived"]
        share = f"{score['killed'] / counted:.1%}" if counted else "–"
        print(f"{room}: {dict(score)} → {share}", flush=True)


if __name__ == "__main__":
    main()
