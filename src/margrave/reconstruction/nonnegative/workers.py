"""The outer tables of a problem divided among processes, on this machine or on the machines of a Dask cluster.

Each worker holds a `Part`: residuals and states of its own outer tables. A round sends the inner tables to every worker
and brings back the facets, gathered into inner tables (``outer``); for all three-way tables of a hundred attributes of
ten values that is 4 MB each way. The kernels, the repair and the certificate are those of a single process, and so is
the result, except for rounding: parts are added up in another order.

Workers see noisy residuals and nothing else: a problem is made of measurements. A worker that is lost takes its state
with it; the solve then ends with an error. It never changes the measurements, so it can be started again.

Processes that are started here talk over TLS, with a key that is made for them and removed when they end. Without it,
whoever can reach the port of a worker could run code in it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from numbers import Integral
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np

from margrave.algebra.kernels import Floats, Index, thread_count
from margrave.errors import MargraveError, ReleaseError
from margrave.memory import large_array, require_memory
from margrave.reconstruction.nonnegative.outer import REPAIR, Found, Given, LocalParts, Part, Parts, Task

if TYPE_CHECKING:
    from margrave.algebra.layout import Layout
    from margrave.reconstruction.nonnegative.problem import Problem

# Cells that are sent at once: 32 MB.
_CHUNK = 4_000_000
# Seconds to wait for started workers to connect, and between checks whether a worker that has not answered is alive.
_CONNECT_SECONDS, _POLL_SECONDS = 120, 1
# A process on this machine that ends closes its connections at once. One that is silent only waits for a processor, on
# a machine with much else to do, and must not be taken for lost after half a minute or five.
_PATIENCE = {
    "distributed.comm.timeouts.tcp": "1 hour",
    "distributed.comm.timeouts.connect": "10 minutes",
    "distributed.scheduler.worker-ttl": "1 day",
}
# How many times to ask the scheduler, after a failure, whether workers are lost.
_LOST_CHECKS = 5
_MOST_PROCESSES = 1024
# Copies of the inner tables that a worker has at once: its own, received and to be sent, as arrays and as messages.
_INNER_COPIES = 8
# Numbers that a part has for each table beside its cells.
_NUMBERS_PER_TABLE = 32


def require_workers(workers: object) -> None:
    """Refuse an invalid value of ``workers``, or any if the package that they need is missing; start none.

    Parameters
    ----------
    workers
        As for `connected`.
    """
    if workers is None:
        return
    _checked(workers)
    if find_spec("distributed") is None:
        raise ReleaseError(
            "workers need the package distributed, which is not installed", remedy="pip install 'margrave[workers]'"
        )


@contextmanager
def connected(workers: object) -> Iterator[Any]:
    """Yield a client of the workers, and release them at the end; None for no workers.

    Parameters
    ----------
    workers
        A number of processes to start on this machine, the address of the scheduler of a Dask cluster
        (``tcp://host:8786``), a ``distributed.Client``, or None.
    """
    require_workers(workers)
    if workers is None:
        yield None
    elif isinstance(workers, Integral):
        with _local_client(int(workers)) as client:
            yield client
    elif isinstance(workers, str):
        with _cluster_client(workers) as client:
            yield client
    else:
        yield workers


class WorkerPool:
    """The workers of a client, which hold one problem after the other.

    Parameters
    ----------
    client
        The client of the cluster.
    stack
        Closed to free what the workers hold, by `free` or at the end of its own context.
    """

    def __init__(self, client: Any, stack: ExitStack) -> None:  # noqa: ANN401 - the engine has no types
        self._client, self._stack = client, stack

    def divide(self, problem: Problem) -> Parts:
        """Divide the outer tables of a problem among the workers, and free the problem before."""
        self.free()  # the problem before is solved, and its memory is needed
        if problem.layout.outer == 0:
            return LocalParts(problem)  # a problem without inner tables is the total alone
        parts = _RemoteParts(self._client, problem)
        self._stack.callback(parts.close)
        return parts

    def free(self) -> None:
        """Free what the workers hold of the current problem."""
        self._stack.close()

    def table_actors(self, actor: type, layout: Layout, work: str) -> TableActors:
        """Make one object on each worker for its part of the outer tables; the caller closes them."""
        return TableActors(self._client, actor, layout, work)


@contextmanager
def worker_pool(workers: object) -> Iterator[WorkerPool | None]:
    """Yield a pool of workers, and free what they hold at the end; None for no workers.

    Parameters
    ----------
    workers
        As for `connected`.
    """
    with connected(workers) as client, ExitStack() as stack:
        yield None if client is None else WorkerPool(client, stack)


def memory_of_part(index: Index, outer: int, facet_cells: int) -> int:
    """Return the bytes that a worker takes for a part.

    These are z and two states of the outer tables, two buffers of their facets, copies of the inner tables, and for all
    tables the index, as received and as kept, and numbers such as weights and sums of moves.

    Parameters
    ----------
    index, outer, facet_cells
        As for `Part`.
    """
    inner_cells, cells = int(index.offset[outer]), int(index.offset[-1])
    numbers = 3 * (cells - inner_cells) + 2 * facet_cells + _INNER_COPIES * inner_cells
    return 8 * (numbers + _NUMBERS_PER_TABLE * len(index.order)) + 2 * sum(one.nbytes for one in index)


def _checked(workers: object) -> None:
    """Refuse what is neither a number of processes nor a cluster."""
    if isinstance(workers, bool):
        raise _unknown(workers)
    if isinstance(workers, Integral):
        known = 1 <= int(workers) <= _MOST_PROCESSES
    elif isinstance(workers, str):
        known = urlsplit(workers).scheme in ("tcp", "tls")
    else:
        # A caller that has a client has imported distributed already.
        distributed = sys.modules.get("distributed")
        known = distributed is not None and isinstance(workers, distributed.Client) and not workers.asynchronous
    if not known:
        raise _unknown(workers)


def _unknown(workers: object) -> ReleaseError:
    return ReleaseError(
        f"workers is {workers!r}",
        remedy=f"give a number of processes from 1 to {_MOST_PROCESSES:,}, the address of a Dask scheduler as in "
        "'tcp://host:8786', or a distributed.Client that is not asynchronous",
    )


@contextmanager
def _cluster_client(address: str) -> Iterator[Any]:
    """Connect to a cluster."""
    from distributed import Client

    try:
        client = Client(address, direct_to_workers=True, set_as_default=False, timeout=_CONNECT_SECONDS)
    except (OSError, ValueError) as error:
        raise ReleaseError(
            f"no Dask scheduler answers at {address} ({type(error).__name__})", remedy="check the address, or start one"
        ) from error
    with client:
        yield client


@contextmanager
def _local_client(count: int) -> Iterator[Any]:
    """Start processes on this machine and connect to them; they end with this context.

    They are started as separate programs: processes spawned by Python would run the script of the caller again, unless
    it has a main guard.
    """
    import dask
    from distributed import Client, LocalCluster
    from distributed.security import Security

    security = Security.temporary()
    with TemporaryDirectory(prefix="margrave-workers-") as folder, ExitStack() as stack:
        stack.enter_context(dask.config.set({"temporary-directory": folder, **_PATIENCE}))
        cluster = stack.enter_context(
            LocalCluster(
                n_workers=0,
                host="127.0.0.1",
                protocol="tls://",
                security=security,
                dashboard_address="127.0.0.1:0",
                silence_logs=50,
            )
        )
        # Only its owner can read a temporary folder, so keys may be written there.
        keys = {
            "--tls-ca-file": security.tls_ca_file,
            "--tls-cert": security.tls_worker_cert,
            "--tls-key": security.tls_worker_key,
        }
        options: list[str] = []
        for name, text in keys.items():
            file = Path(folder, f"{name.lstrip('-')}.pem")
            file.write_text(str(text))
            options += [name, str(file)]
        log = stack.enter_context(Path(folder, "log").open("w+b"))
        patience = {
            f"DASK_{name.replace('.', '__').replace('-', '_').upper()}": text for name, text in _PATIENCE.items()
        }
        environment = {**os.environ, **patience, "MARGRAVE_THREADS": str(max(1, thread_count() // count))}
        for number in range(count):
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "distributed.cli.dask_worker", cluster.scheduler_address, *options),
                    *("--host", "127.0.0.1", "--no-dashboard", "--dashboard-address", "127.0.0.1:0"),
                    *("--no-nanny", "--nthreads", "1", "--memory-limit", "0"),
                    *("--name", f"margrave-{number}", "--local-directory", folder),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
        client = stack.enter_context(Client(cluster, direct_to_workers=True, set_as_default=False))
        try:
            client.wait_for_workers(count, timeout=_CONNECT_SECONDS)
        except TimeoutError:
            log.seek(0)
            last = (log.read().decode(errors="replace").strip().splitlines() or ["they said nothing"])[-1]
            raise ReleaseError(
                f"{count} workers did not start within {_CONNECT_SECONDS} s ({last})", remedy="use fewer, or none"
            ) from None
        yield client


class _PartActor:
    """A part on a worker, whose residuals are sent piece by piece."""

    def open(self, version: str, sharing: int, index: Index, outer: int, facet_cells: int, weights: Floats) -> None:
        """Make room for a part whose residuals come later."""
        prepare_worker(version, sharing * memory_of_part(index, outer, facet_cells), sharing)
        index = Index(*(np.array(one) for one in index))
        self._z = np.empty(int(index.offset[-1] - index.offset[outer]))
        view = self._z.view()
        view.setflags(write=False)
        self._part = Part(index, outer, facet_cells, view, np.array(weights))

    def fill(self, begin: int, cells: Floats) -> None:
        """Receive residuals."""
        self._z[begin : begin + cells.size] = cells

    def run(self, name: str, *arguments: object, **options: object) -> object:
        """Run a pass."""
        own = [np.array(one) if isinstance(one, np.ndarray) else one for one in arguments]
        return getattr(self._part, name)(*own, **options)

    def close(self) -> None:
        """Release the part and its residuals."""
        del self._part, self._z


class Actors:
    """Objects of one class, one on each worker (actors); a method is called on all of them at once.

    A call is never repeated: if a worker is lost or fails, the work ends with a `ReleaseError`.

    Parameters
    ----------
    client
        The client of the cluster.
    actor
        The class; its objects are made without arguments, and have a method ``close``.
    addresses
        The workers that get an object, from `worker_hosts`.
    work
        What is done, for the error message, as in "tables were reconstructed".
    """

    def __init__(self, client: Any, actor: type, addresses: Sequence[str], work: str) -> None:  # noqa: ANN401
        self._client, self._addresses, self._work = client, list(addresses), work
        self._actors: list[Any] = []
        with self._translated_errors():
            made = [
                client.submit(actor, actor=True, workers=[address], allow_other_workers=False, pure=False)
                for address in addresses
            ]
            self._actors = [self._result(one, address) for one, address in zip(made, addresses, strict=True)]

    def __len__(self) -> int:
        return len(self._actors)

    def call(self, name: str, arguments: Sequence[tuple[object, ...]], **options: object) -> list[Any]:
        """Call a method of each object, or of as many as there are arguments for, and wait for all of them."""
        with self._translated_errors():
            asked = [
                (getattr(actor, name)(*own, **options), address)
                for actor, address, own in zip(self._actors, self._addresses, arguments, strict=False)
            ]
            return [_writable(self._result(one, address)) for one, address in asked]

    def close(self) -> None:
        """Free what the workers hold, if they are still there."""
        try:
            closing = [actor.close() for actor in self._actors]
            for one in closing:
                one.result(timeout=_POLL_SECONDS)
        except (OSError, RuntimeError):
            pass  # a worker that is lost holds nothing
        self._actors = []

    def _result(self, asked: Any, address: str) -> Any:  # noqa: ANN401 - the engine has no types
        """Wait for an answer for as long as the worker is there."""
        while True:
            try:
                return asked.result(timeout=_POLL_SECONDS)
            except TimeoutError:
                if address not in self._client.scheduler_info(n_workers=-1)["workers"]:
                    raise OSError(f"no answer from {address}") from None

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Turn errors of Dask into a `ReleaseError`; actors need the client to be the current one."""
        try:
            with self._client.as_current():
                yield
        except MargraveError:
            raise
        except (OSError, RuntimeError, MemoryError) as error:
            lost = self._count_lost()
            happened = f"{lost} of {len(self._addresses)} workers were lost" if lost else "a worker failed"
            raise ReleaseError(
                f"{happened} while {self._work} ({type(error).__name__})",
                remedy="the measurements are as they were: do it again, with more memory for each worker or without "
                "workers",
            ) from (None if lost else error)  # Dask's error about a lost worker explains nothing

    def _count_lost(self) -> int:
        """Return how many workers are lost; the scheduler may learn of it later than this process."""
        for _ in range(_LOST_CHECKS):
            lost = set(self._addresses) - set(self._client.scheduler_info(n_workers=-1)["workers"])
            if lost:
                break
            time.sleep(_POLL_SECONDS)
        return len(lost)


def prepare_worker(version: str, needed: int = 0, sharing: int = 1) -> None:
    """Check, on a worker, margrave's version and the memory that is left, and set how many threads it uses.

    Parameters
    ----------
    version
        The version of the caller.
    needed
        The bytes that the workers of this machine will take together.
    sharing
        How many workers those are.
    """
    from distributed import get_worker

    import margrave

    if margrave.__version__ != version:
        raise ReleaseError(
            f"a worker has margrave {margrave.__version__} and the session {version}", remedy="install one of them"
        )
    # Workers of a cluster state their threads; those that were started here have the number in their environment.
    os.environ.setdefault("MARGRAVE_THREADS", str(get_worker().state.nthreads))
    require_memory(needed, f"the share of {sharing} workers of one machine", [], advice="use more machines")


def worker_hosts(client: Any) -> dict[str, str]:  # noqa: ANN401 - the engine has no types
    """Return the machine of each worker of a client, by the worker's address."""
    known = client.scheduler_info(n_workers=-1)["workers"]
    if not known:
        raise ReleaseError("the Dask cluster has no workers", remedy="start some, or leave workers out")
    return {address: known[address]["host"] for address in sorted(known)}


class TableActors(Actors):
    """Objects of one class, each with a part of the outer tables of a layout; parts have about equal cells.

    Parameters
    ----------
    client, actor, work
        As for `Actors`. The objects have a method ``fill(begin, cells)``.
    layout
        The closure.
    """

    def __init__(self, client: Any, actor: type, layout: Layout, work: str) -> None:  # noqa: ANN401
        self.layout, known = layout, worker_hosts(client)
        self.bounds = partition(layout, len(known))
        super().__init__(client, actor, list(known)[: len(self.bounds)], work)
        self._hosts = [known[address] for address in self._addresses]

    def opening_arguments(self) -> list[tuple[str, int, Layout]]:
        """Return what each object needs first: the version, the workers on its machine, and its own layout."""
        import margrave

        return [
            (margrave.__version__, self._hosts.count(host), self.layout.restricted(first, last))
            for host, (first, last) in zip(self._hosts, self.bounds, strict=True)
        ]

    def per_part(self, values: Floats) -> list[Floats]:
        """Split one number per table by worker: each gets those of all inner and of its outer tables."""
        inner = values[: self.layout.outer]
        return [np.concatenate([inner, values[first:last]]) for first, last in self.bounds]

    def cells_per_part(self, outer: Floats) -> list[Floats]:
        """Split the cells of all outer tables by worker."""
        offset = self.layout.index.offset - self.layout.inner_cells
        return [outer[offset[first] : offset[last]] for first, last in self.bounds]

    def send(self, outer: Floats) -> None:
        """Send every worker its cells, piece by piece."""
        own_cells = self.cells_per_part(outer)
        for begin in range(0, max(one.size for one in own_cells), _CHUNK):
            self.call("fill", [(begin, one[begin : begin + _CHUNK]) for one in own_cells])

    def fetch(self, outer: Floats, name: str, *arguments: object) -> None:
        """Write what the method ``name(…, begin, end)`` of every worker returns to the cells of all outer tables."""
        own_cells = self.cells_per_part(outer)
        for begin in range(0, max(one.size for one in own_cells), _CHUNK):
            pieces = self.call(name, [(*arguments, begin, begin + _CHUNK)] * len(self))
            for own, piece in zip(own_cells, pieces, strict=True):
                own[begin : begin + _CHUNK] = piece


class _RemoteParts(TableActors):
    """The parts of a problem, one on each worker of a client.

    Parameters
    ----------
    client
        The client of the cluster.
    problem
        The problem; its outer tables are sent to the workers, in parts of about equal cells.
    """

    def __init__(self, client: Any, problem: Problem) -> None:  # noqa: ANN401 - the engine has no types
        super().__init__(client, _PartActor, problem.layout, "tables were reconstructed")
        openings: list[tuple[object, ...]] = [
            (version, sharing, own.index, own.outer, own.facet_cells, weights)
            for (version, sharing, own), weights in zip(
                self.opening_arguments(), self.per_part(problem.weights), strict=True
            )
        ]
        self.call("open", openings)
        self.send(problem.z[problem.layout.inner_cells :])

    def run(self, task: Task[Given, Found], *arguments: Given.args, **options: Given.kwargs) -> list[Found]:
        """Run a pass on every worker."""
        return self.run_each(task, [arguments] * len(self._actors), **options)

    def run_each(
        self, task: Callable[..., Found], arguments: Sequence[tuple[object, ...]], **options: object
    ) -> list[Found]:
        """Run a pass on every worker with arguments of its own."""
        return self.call("run", [(task.__name__, *own) for own in arguments], **options)

    def result(self, inner: Floats) -> Floats:
        """Fetch the tables of the closure."""
        tables = large_array(self.layout.cells)
        tables[: inner.size] = inner
        self.fetch(tables[inner.size :], "run", Part.read.__name__, REPAIR)
        return tables


def partition(layout: Layout, parts: int) -> list[tuple[int, int]]:
    """Split the outer tables into at most this many ranges of about equal cells, none of them empty.

    Parameters
    ----------
    layout
        The closure.
    parts
        How many ranges there may be.
    """
    offset = layout.index.offset[layout.outer :]
    targets = offset[0] + np.arange(1, parts) * ((offset[-1] - offset[0]) / parts)
    bounds = np.unique(np.concatenate([[0], np.searchsorted(offset, targets), [len(offset) - 1]])) + layout.outer
    return list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))


def _writable(found: Any) -> Any:  # noqa: ANN401 - whatever a pass returns
    """Return the result of a pass with writable arrays; those received from a worker may be read-only."""
    if isinstance(found, np.ndarray):
        return found if found.flags.writeable else found.copy()
    if isinstance(found, tuple):
        fields = [_writable(one) for one in found]
        return type(found)(*fields) if hasattr(found, "_fields") else tuple(fields)
    return found
