r"""The compiled loops behind the transforms: one pass over the cells of a table, whatever its order.

A table of order k has k *facets*: the tables of order k − 1 that lack one of its axes. Two passes suffice for all of
the algebra (the derivation is in ``transform``):

    sum_facets     s_j = sum of x along axis j, for every j, in one pass over x
    add_facets     x + Σ_j broadcast of p_j along axis j, in one pass over x

Both walk a table as blocks of its last three axes (a, b, c); a block touches contiguous pieces of the facets. Tables,
facets and their places come in flat arrays described by an ``Index``. All loops release the interpreter lock, and a
call works on a range of tables that no other call touches, so that plain threads can share a workload (`over_tables`).
Ranges are handed out one by one: a core that is busy with something else takes fewer of them. Which thread runs a range
never changes a result.

Arrays are cut into views before they are looped over: a loop variable that indexes a view directly is known not to be
negative, and only then do the loops run in vector registers (five times faster than offset arithmetic).

The compiler (numba) takes as long to import as all else that a query of a saved release needs. So a decorated function
is a `Kernel` at first, which asks for the compiler when it is called. Kernels call each other, and the compiler must
then see compiled functions: before a kernel is compiled, every kernel that its module knows by name is replaced there.

Machine code is kept in files beside the source. The compiler throws it away when that source changes, but not when
something changes that the function takes from another module, whose code or value is part of the machine code. So the
files bear a `fingerprint` of all that a function is made of.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, update_wrapper
from hashlib import sha256
from itertools import pairwise
from threading import Lock, RLock
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from hashlib import _Hash as Hash

Function = TypeVar("Function", bound=Callable[..., Any])

# Threads may call a kernel for the first time at once. Under the lock: the kernels that one call has led to, and what
# replaces the names of their modules, those that are called before those that call them.
_LOCK = RLock()
_PENDING: list[Kernel] = []
_REPLACING: list[tuple[dict[str, Any], dict[str, Any]]] = []


class Kernel:
    """A function that is compiled when it is first called.

    Parameters
    ----------
    function
        A function that numba can compile.
    options
        The options of ``numba.njit``.
    """

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        self._function, self._options = function, options
        self._compiled: Callable[..., Any] | None = None
        self._ready: Callable[..., Any] | None = None
        update_wrapper(self, function)

    def __call__(self, *arguments: Any) -> Any:  # noqa: ANN401 — the decorator keeps the types of the function
        """Call the compiled function."""
        return (self._ready or self.compiled())(*arguments)

    def compiled(self) -> Callable[..., Any]:
        """Return numba's form of the function."""
        with _LOCK:
            if self._compiled is None:
                from numba import njit

                # The name in full is that of the file with the machine code.
                self._function.__qualname__ = f"{self._function.__name__}_{fingerprint(self._function)}"
                self._compiled = cast("Callable[..., Any]", njit(**self._options)(self._function))
                _PENDING.append(self)
                names = self._function.__globals__
                found = {name: one.compiled() for name, one in list(names.items()) if isinstance(one, Kernel)}
                _REPLACING.append((names, found))
                # Not before all are there: another thread could call one of them whose names are still kernels.
                if _PENDING[0] is self:
                    for module, replaced in _REPLACING:
                        module.update(replaced)
                    for kernel in _PENDING:
                        kernel._ready = kernel._compiled
                    _PENDING.clear()
                    _REPLACING.clear()
            return self._compiled


class Emitted(Kernel):
    """A function whose machine code is written out by hand, for what the compiler does not find by itself.

    Parameters
    ----------
    function
        As ``numba.extending.intrinsic`` takes it: given the types of the arguments, it returns the signature and a
        function that writes the code.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function, {})

    def compiled(self) -> Callable[..., Any]:
        """Return numba's form of the function, which compiled functions alone can call."""
        with _LOCK:
            if self._compiled is None:
                from numba.extending import intrinsic

                self._compiled = cast("Callable[..., Any]", intrinsic(prefer_literal=True)(self._function))
            return self._compiled


def fingerprint(function: Callable[..., Any]) -> str:
    """Return digits that change with a function's code, the values that it takes from its module, and its kernels.

    Parameters
    ----------
    function
        A function to compile. Functions that it calls count if they are kernels, compiled or not.
    """
    found = sha256()
    _digest(function, found, set())
    return found.hexdigest()[:12]


def _digest(function: Callable[..., Any], found: Hash, seen: set[Callable[..., Any]]) -> None:
    """Feed a hash with what a function is made of; once each, since functions may call themselves."""
    if function in seen:
        return
    seen.add(function)
    codes = [function.__code__]
    for code in codes:  # which grows by the functions inside
        codes += [one for one in code.co_consts if isinstance(one, CodeType)]
        found.update(code.co_code)
        found.update(repr([one for one in code.co_consts if not isinstance(one, CodeType)]).encode())
        for name in code.co_names:
            value = function.__globals__.get(name)
            found.update(name.encode())
            if isinstance(value, np.ndarray):
                found.update(f"{value.dtype}{value.shape}".encode() + value.tobytes())
            elif isinstance(value, (int, float, str, tuple)):
                found.update(repr(value).encode())
            elif called := getattr(value, "__wrapped__", None):  # of a kernel, or of what took its place
                _digest(called, found, seen)


def compiler(**options: Any) -> Callable[[Function], Function]:  # noqa: ANN401 — as numba takes them
    """Return a decorator for functions to compile with these options of ``numba.njit``."""

    def decorator(function: Function) -> Function:
        return cast("Function", Kernel(function, options))

    return decorator


Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Sums may be regrouped, which vector registers need; NaN and infinity keep their meaning.
compiled = compiler(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"}, error_model="numpy")
# Below this many cells a second thread costs more than it brings (waking it takes about as long as 50,000 cells).
_CELLS_WORTH_A_THREAD = 65_536
_RANGES_PER_THREAD = 8


class Index(NamedTuple):
    """Where the tables of a closure and their facets live in flat buffers; row t is about table t.

    Attributes
    ----------
    order
        Shape (tables,); number of axes.
    axes
        Shape (tables, largest order); lengths of the axes, then ones.
    offset
        Shape (tables + 1,); first cell of the table in a buffer of the closure.
    facet
        Shape (tables, largest order); the table that lacks axis j.
    slot
        Shape (tables, largest order); first cell of facet j in a buffer of facets.
    above_start, above_slot
        The slots in which table t is a facet are ``above_slot[above_start[t] : above_start[t + 1]]``.
    """

    order: Integers
    axes: Integers
    offset: Integers
    facet: Integers
    slot: Integers
    above_start: Integers
    above_slot: Integers


@compiled
def facet_cells(axes: Integers, order: int, removed: int) -> int:
    """Return the number of cells of the facet that lacks axis ``removed``."""
    cells = 1
    for i in range(order):
        if i != removed:
            cells *= axes[i]
    return cells


@compiled
def subtract_mean(values: Floats) -> None:
    """Subtract the mean along the middle axis of an array of shape (outer, length, inner), in place."""
    outer, length, inner = values.shape
    mean = np.empty(inner)
    for o in range(outer):
        mean[:] = 0.0
        for i in range(length):
            for c in range(inner):
                mean[c] += values[o, i, c]
        for c in range(inner):
            mean[c] /= length
        for i in range(length):
            for c in range(inner):
                values[o, i, c] -= mean[c]


@compiled
def center_before(facet: Floats, axes: Integers, removed: int) -> None:
    """Centre a facet, in place, along the axes before the one it lacks: C_{<j} with j = ``removed``."""
    outer = 1
    for i in range(removed):
        subtract_mean(facet.reshape(outer, axes[i], facet.size // (outer * axes[i])))
        outer *= axes[i]


@compiled
def sum_block(x: Floats, bc: Floats, ac: Floats, ab: Floats) -> None:
    """Add the sums of x along its axes a and b to ``bc`` and ``ac``, and write those along c to ``ab``."""
    na, nb, nc = x.shape
    for a in range(na):
        for b in range(nb):
            total = 0.0
            for c in range(nc):
                value = x[a, b, c]
                total += value
                bc[b, c] += value
                ac[a, c] += value
            ab[a, b] = total


@compiled
def add_block(scale: float, x: Floats, share: float, bc: Floats, ac: Floats, ab: Floats, out: Floats) -> None:
    """Write scale · x + share · (bc + ac + ab, each broadcast along the axis it lacks) to ``out``."""
    na, nb, nc = x.shape
    for a in range(na):
        for b in range(nb):
            part = ab[a, b]
            for c in range(nc):
                out[a, b, c] = scale * x[a, b, c] + share * (part + bc[b, c] + ac[a, c])


@compiled
def leading_place(index: int, leading: int, axes: Integers, removed: int) -> int:
    """Return the number of a block among those of a leading facet: its place without the axis ``removed``."""
    outer = leading
    for i in range(removed):
        outer //= axes[i]
    inner: int = outer // axes[removed]
    return index // outer * inner + index % inner


@compiled
def sum_facets(x: Floats, axes: Integers, order: int, facets: Floats, slot: Integers) -> None:
    """Write the sums of the table x, a flat array, along each axis j to ``facets[slot[j]:]``."""
    if order == 1:
        facets[slot[0]] = x.sum()
    elif order == 2:
        nb, nc = axes[0], axes[1]
        columns = facets[slot[0] : slot[0] + nc]
        columns[:] = 0.0
        table = x.reshape(nb, nc)
        rows = facets[slot[1] : slot[1] + nb]
        for b in range(nb):
            total = 0.0
            for c in range(nc):
                total += table[b, c]
                columns[c] += table[b, c]
            rows[b] = total
    elif order > 2:
        lead = order - 3
        na, nb, nc = axes[lead], axes[lead + 1], axes[lead + 2]
        block = na * nb * nc
        leading = x.size // block
        for j in range(order - 1):
            facets[slot[j] : slot[j] + facet_cells(axes, order, j)] = 0.0
        for index in range(leading):
            piece = x[index * block : (index + 1) * block]
            for j in range(lead):
                to = slot[j] + leading_place(index, leading, axes, j) * block
                target = facets[to : to + block]
                for i in range(block):
                    target[i] += piece[i]
            bc, ac, ab = trailing_facets(facets, slot, lead, index, na, nb, nc)
            sum_block(piece.reshape(na, nb, nc), bc, ac, ab)


@compiled
def add_facets(
    scale: float,
    x: Floats,
    share: float,
    axes: Integers,
    order: int,
    facets: Floats,
    slot: Integers,
    out: Floats,
) -> None:
    """Write scale · x + share · Σ_j ``facets[slot[j]:]``, broadcast along axis j, to ``out``, which may be x."""
    if order == 0:
        out[0] = scale * x[0]
    elif order == 1:
        part = share * facets[slot[0]]
        for i in range(x.size):
            out[i] = scale * x[i] + part
    elif order == 2:
        nb, nc = axes[0], axes[1]
        columns, rows = facets[slot[0] : slot[0] + nc], facets[slot[1] : slot[1] + nb]
        table, result = x.reshape(nb, nc), out.reshape(nb, nc)
        for b in range(nb):
            for c in range(nc):
                result[b, c] = scale * table[b, c] + share * (rows[b] + columns[c])
    else:
        lead = order - 3
        na, nb, nc = axes[lead], axes[lead + 1], axes[lead + 2]
        block = na * nb * nc
        leading = x.size // block
        for index in range(leading):
            values = x[index * block : (index + 1) * block]
            piece = out[index * block : (index + 1) * block]
            factor = scale
            for j in range(lead):
                start = slot[j] + leading_place(index, leading, axes, j) * block
                source = facets[start : start + block]
                for i in range(block):
                    piece[i] = factor * values[i] + share * source[i]
                values, factor = piece, 1.0
            bc, ac, ab = trailing_facets(facets, slot, lead, index, na, nb, nc)
            add_block(factor, values.reshape(na, nb, nc), share, bc, ac, ab, piece.reshape(na, nb, nc))


@compiled
def trailing_facets(
    facets: Floats, slot: Integers, lead: int, index: int, na: int, nb: int, nc: int
) -> tuple[Floats, Floats, Floats]:
    """Return the pieces of the facets of the last three axes that belong to block ``index``: (b, c), (a, c), (a, b)."""
    bc = slot[lead] + index * nb * nc
    ac = slot[lead + 1] + index * na * nc
    ab = slot[lead + 2] + index * na * nb
    return (
        facets[bc : bc + nb * nc].reshape(nb, nc),
        facets[ac : ac + na * nc].reshape(na, nc),
        facets[ab : ab + na * nb].reshape(na, nb),
    )


@compiled
def widest_facets(first: int, last: int, index: Index) -> int:
    """Return the largest number of facet cells that one of the tables first … last − 1 has."""
    widest = 0
    for t in range(first, last):
        total = 0
        for j in range(index.order[t]):
            total += facet_cells(index.axes[t], index.order[t], j)
        widest = max(widest, total)
    return widest


@compiled
def spread_facets(t: int, index: Index, marginals: Floats, facets: Floats, slot: Integers) -> None:
    """Write C_{<j} μ_j / n_j for each facet j of table t to ``facets``, one after the other, and where to ``slot``."""
    order, axes = index.order[t], index.axes[t]
    begin = 0
    for j in range(order):
        cells = facet_cells(axes, order, j)
        start = index.offset[index.facet[t, j]]
        source, target = marginals[start : start + cells], facets[begin : begin + cells]
        for i in range(cells):
            target[i] = source[i] / axes[j]
        center_before(target, axes, j)
        slot[j] = begin
        begin += cells


@compiled
def raise_tables(
    first: int, last: int, index: Index, inner: Floats, residuals: Floats, marginals: Floats, shift: int
) -> None:
    """Turn residuals into marginals, tables first … last − 1, given the marginals of all their facets in ``inner``.

    ``residuals`` and ``marginals`` are buffers that begin at cell ``shift`` of the closure; they may be one.
    """
    facets = np.empty(widest_facets(first, last, index))
    slot = np.empty(index.axes.shape[1], dtype=np.int64)
    for t in range(first, last):
        spread_facets(t, index, inner, facets, slot)
        start, end = index.offset[t] - shift, index.offset[t + 1] - shift
        x, out = residuals[start:end], marginals[start:end]
        add_facets(1.0, x, 1.0, index.axes[t], index.order[t], facets, slot, out)


@compiled
def lower_tables(
    first: int,
    last: int,
    index: Index,
    tables: Floats,
    weights: Floats,
    factors: Floats,
    facets: Floats,
    residuals: Floats,
) -> None:
    """Split weighted tables first … last − 1 into what their facets know and the rest, the ``residuals``.

    With weight a of the table, facet j receives a C_{<j} s_j / n_j; what is left of the weighted table is centred, and
    is written times the table's factor. A weight of zero ignores what the table holds. ``residuals`` may be
    ``tables``.
    """
    for t in range(first, last):
        order, axes, slot = index.order[t], index.axes[t], index.slot[t]
        start, end = index.offset[t], index.offset[t + 1]
        x, out = tables[start:end], residuals[start:end]
        if weights[t] == 0.0:
            out[:] = 0.0
        else:
            sum_facets(x, axes, order, facets, slot)
        for j in range(order):
            facet = facets[slot[j] : slot[j] + facet_cells(axes, order, j)]
            if weights[t] == 0.0:
                facet[:] = 0.0
            else:
                scale = weights[t] / axes[j]
                for i in range(facet.size):
                    facet[i] *= scale
                center_before(facet, axes, j)
        if weights[t] != 0.0:
            add_facets(factors[t] * weights[t], x, -factors[t], axes, order, facets, slot, out)


@compiled
def gather_facets(first: int, last: int, index: Index, weights: Floats, facets: Floats, tables: Floats) -> None:
    """Turn each of the tables first … last − 1 into its weight times itself plus all the slots where it is a facet."""
    for t in range(first, last):
        table = tables[index.offset[t] : index.offset[t + 1]]
        for i in range(table.size):
            table[i] = weights[t] * table[i] if weights[t] != 0.0 else 0.0
        for k in range(index.above_start[t], index.above_start[t + 1]):
            slot = index.above_slot[k]
            facet = facets[slot : slot + table.size]
            for i in range(table.size):
                table[i] += facet[i]


@compiled
def subset_tables(table: int, index: Index, subsets: Integers) -> None:
    """Fill ``subsets[mask]`` with the table over the axes of ``table`` whose bits are set in ``mask``."""
    full = (1 << index.order[table]) - 1
    subsets[full] = table
    for mask in range(full - 1, -1, -1):
        added = 0
        while mask >> added & 1:
            added += 1
        # All axes below the added one are in the mask, so its place among the axes of the larger set is ``added``.
        subsets[mask] = index.facet[subsets[mask | 1 << added], added]


@compiled
def accumulate_spectrum(first: int, last: int, index: Index, weights: Floats, spectrum: Floats) -> None:
    """Add a_γ n_τ / n_γ to ``spectrum[τ]`` for every τ ⊆ γ and every γ in first … last − 1 with weight a_γ."""
    subsets = np.empty(1 << index.axes.shape[1], dtype=np.int64)
    for t in range(first, last):
        if weights[t] == 0.0:
            continue
        subset_tables(t, index, subsets)
        scaled = weights[t] / (index.offset[t + 1] - index.offset[t])
        for mask in range(1 << index.order[t]):
            tau = subsets[mask]
            spectrum[tau] += scaled * (index.offset[tau + 1] - index.offset[tau])


@compiled
def accumulate_counts(first: int, last: int, index: Index, repeats: Integers, counts: Integers) -> None:
    """Add the number of times that γ is counted to ``counts[τ]`` for every τ ⊆ γ and every γ in first … last − 1."""
    subsets = np.empty(1 << index.axes.shape[1], dtype=np.int64)
    for t in range(first, last):
        if repeats[t] != 0:
            subset_tables(t, index, subsets)
            for mask in range(1 << index.order[t]):
                counts[subsets[mask]] += repeats[t]


@compiled
def integrate_tables(first: int, last: int, index: Index, tables: Floats) -> None:
    """Turn differences into centred tables, first … last − 1, in place; they fill all but the last place of each axis.

    Along one axis: running sums from the end, where the last place holds zero, then less their mean.
    """
    for t in range(first, last):
        table = tables[index.offset[t] : index.offset[t + 1]]
        outer = 1
        for i in range(index.order[t]):
            length = index.axes[t, i]
            values = table.reshape(outer, length, table.size // (outer * length))
            for o in range(outer):
                for a in range(length - 1, 0, -1):
                    values[o, a - 1] += values[o, a]
            subtract_mean(values)
            outer *= length


def thread_count() -> int:
    """Return how many threads to use: ``MARGRAVE_THREADS`` if set, else the cores this process may run on."""
    asked = os.environ.get("MARGRAVE_THREADS", "")
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def over_tables(task: Callable[[int, int], None], first: int, last: int, offset: Integers) -> None:
    """Call ``task(begin, end)`` for ranges that make up tables ``first … last − 1``, on all threads.

    Parameters
    ----------
    task
        Works on the tables begin … end − 1 and on nothing that another range writes.
    first, last
        The tables to work on.
    offset
        First cell of each table; tells how much work a table is.
    """
    cells = int(offset[last] - offset[first])
    # Small problems come here thousands of times: how many threads there are is not asked for nothing.
    threads = 1 if cells < _CELLS_WORTH_A_THREAD or last - first < 2 else thread_count()
    if threads == 1:
        if last > first:
            task(first, last)
        return
    pieces = min(threads * _RANGES_PER_THREAD, last - first, max(threads, cells // _CELLS_WORTH_A_THREAD))
    targets = offset[first] + np.arange(1, pieces) * (cells / pieces)
    bounds = np.unique(np.concatenate([[first], np.searchsorted(offset[first:last], targets) + first, [last]]))
    ranges = list(pairwise(bounds.tolist()))
    # Not a shared iterator: without an interpreter lock it might hand out a range twice, and tasks may add up.
    taking = Lock()

    def work() -> None:
        while True:
            with taking:
                if not ranges:
                    return
                begin, end = ranges.pop(0)
            task(begin, end)

    helpers: list[Future[None]] = [_pool(threads).submit(work) for _ in range(threads - 1)]
    try:
        work()
    finally:
        for helper in helpers:
            helper.result()


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """Return the pool that serves all calls with this many threads."""
    return ThreadPoolExecutor(max_workers=threads - 1, thread_name_prefix="margrave")


def _after_fork() -> None:
    """In a forked process: drop the pools, whose threads are those of the parent, and release the lock."""
    _pool.cache_clear()
    _LOCK.release()


# A forked process would wait for ever for threads that it does not have, or for a lock that one of them held.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_after_fork)
