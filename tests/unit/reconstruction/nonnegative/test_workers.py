"""The solver divided among workers: the same tables as alone, and one sentence when a worker is lost."""

import os
import pickle
import re
import signal
import subprocess
import sys
import tracemalloc
from itertools import combinations

import numpy as np
import pytest

import margrave as mg
from margrave.algebra import transform
from margrave.algebra.layout import Layout
from margrave.domain import Domain
from margrave.errors import MargraveError, MemoryLimitError, ReleaseError, StoreError
from margrave.measurements import Measurements
from margrave.reconstruction.estimates import Estimates
from margrave.reconstruction.nonnegative import Problem, Status, reconstruct_nonnegative
from margrave.reconstruction.nonnegative import workers as workers_module
from margrave.reconstruction.nonnegative.outer import REPAIR, ROUNDS
from margrave.reconstruction.nonnegative.workers import Actors, memory_of_part, partition, worker_pool
from margrave.reconstruction.prior import automatic
from margrave.release.store import saving

distributed = pytest.importorskip("distributed")

SHAPES = {
    "triples": ((4, 3, 5, 2, 3), list(combinations(range(5), 3))),
    "pairs": ((4, 3, 5, 2), list(combinations(range(4), 2))),
    "mixed orders": ((3, 2, 4, 2, 3), [(0, 1, 2, 3), (1, 2, 4), (0, 4), (3, 4)]),
    "one attribute each": ((5, 2, 3), [(0,), (1,), (2,)]),
    "fewer tables than workers": ((3, 4, 2), [(0, 1), (1, 2)]),
    "the total alone": ((3,), [()]),
}


def noisy(sizes, family, total=60.0, seed=0):
    layout = Layout.of(sizes, family)
    values = 6 * transform.center(layout, np.random.default_rng(seed).normal(size=layout.cells))
    values[0] = total
    ones = np.ones(len(layout.sets))
    return Estimates(layout, values, ones.astype(np.int64), ones)


def refused(text, error=ReleaseError):
    return pytest.raises(error, match=re.escape(text))


@pytest.fixture(scope="module")
def four():
    """Four processes on this machine, shared by the tests that do them no harm."""
    with workers_module._local_client(4) as client:
        yield client


@pytest.fixture
def pool(four):
    with worker_pool(four) as found:
        yield found


@pytest.mark.parametrize(("sizes", "family"), SHAPES.values(), ids=SHAPES)
def test_four_workers_find_the_tables_of_one_process(pool, sizes, family):
    """The order of sums is all that differs: 60 rounds do not let rounding of 1e-16 of the total grow beyond 1e-12."""
    estimates = noisy(sizes, family)
    for options in ({}, {"hold": [0]}, {"weights": 8.0, "max_steps": 7}):
        alone = reconstruct_nonnegative(estimates, **options)
        divided = reconstruct_nonnegative(estimates, **options, workers=pool)
        np.testing.assert_allclose(divided.marginals, alone.marginals, rtol=0, atol=1e-12 * 60)
        assert (divided.status, divided.steps) == (alone.status, alone.steps)
        assert divided.gap == pytest.approx(alone.gap, rel=1e-6, abs=1e-12)
        assert divided.lift == pytest.approx(alone.lift, rel=1e-6, abs=1e-12)
        assert divided.violation == pytest.approx(alone.violation, rel=1e-6, abs=1e-12)


def test_lifts_and_holds_of_more_than_the_total_are_divided_too(pool, monkeypatch):
    from margrave.reconstruction.nonnegative import repair

    sizes, family = SHAPES["triples"]
    estimates = noisy(sizes, family, total=300.0)
    layout = estimates.layout
    people = np.random.default_rng(1).uniform(0.3, 1, size=sizes)
    people *= 300 / people.sum()
    values = np.array(estimates.values)
    held = np.flatnonzero(layout.index.order <= 1).tolist()
    for table in held[1:]:
        (attribute,) = layout.sets[table]
        counts = people.sum(axis=tuple(k for k in range(5) if k != attribute))
        layout.view(values, table)[...] = counts - counts.mean()
    monkeypatch.setattr(repair, "FIRST_ROUNDS", 1)
    monkeypatch.setattr(repair, "LAST_ROUNDS", 1)
    estimates = Estimates(layout, values, estimates.counts, estimates.precisions)
    for hold in ([0], held):
        alone = reconstruct_nonnegative(estimates, hold=hold, max_steps=20)
        divided = reconstruct_nonnegative(estimates, hold=hold, max_steps=20, workers=pool)
        assert alone.lift > 0
        np.testing.assert_allclose(divided.marginals, alone.marginals, rtol=0, atol=1e-12 * 300)
        assert divided.lift == pytest.approx(alone.lift, rel=1e-9)


def test_tables_that_were_never_negative_come_back_as_they_are(pool):
    estimates = noisy(*SHAPES["triples"], total=1e6)
    alone, divided = reconstruct_nonnegative(estimates), reconstruct_nonnegative(estimates, workers=pool)
    assert divided.steps == 0
    np.testing.assert_allclose(divided.marginals, alone.marginals, rtol=1e-13)


def test_a_start_is_taken_over_by_workers(pool):
    estimates = noisy(*SHAPES["triples"])
    alone = reconstruct_nonnegative(estimates)
    again = reconstruct_nonnegative(estimates, start=alone.state, workers=pool)
    assert again.steps == 1 < alone.steps
    assert again.status is Status.SOLVED
    # Their own state would be another array to fetch.
    assert again.state is None


@pytest.mark.parametrize("family", ["triples", "four-way", "mixed orders", "pairs"])
def test_the_rule_behind_auto_is_divided_too(pool, family):
    """Only sums over tables differ; what is learned from them amplifies their rounding, to 1e-9 of the total at most.

    Tables of several orders, and pairs, are estimated by the caller alone.
    """
    shapes = {**SHAPES, "four-way": ((3, 2, 4, 2, 3), list(combinations(range(5), 4)))}
    estimates = noisy(*shapes[family], total=200.0)
    alone, divided = automatic(estimates), automatic(estimates, workers=pool)
    np.testing.assert_allclose(divided.estimates.values, alone.estimates.values, rtol=0, atol=1e-9 * 200)
    np.testing.assert_allclose(divided.weights, alone.weights, rtol=1e-6)


def test_tables_below_zero_are_cut_off_by_workers_as_they_are_alone(pool):
    """So few people that the noise drives whole inner tables below zero; rounding as above."""
    for seed in range(3):
        estimates = noisy(*SHAPES["triples"], total=20.0, seed=seed)
        alone, divided = automatic(estimates), automatic(estimates, workers=pool)
        np.testing.assert_allclose(divided.estimates.values, alone.estimates.values, rtol=0, atol=1e-9 * 200)
        np.testing.assert_allclose(divided.weights, alone.weights, rtol=1e-6)


def test_the_largest_tables_are_estimated_by_workers_and_by_nobody_else(pool, monkeypatch):
    from margrave.reconstruction.prior import levels

    ranges = []
    kernel = levels.estimate_tables
    monkeypatch.setattr(levels, "estimate_tables", lambda *given: (ranges.append(given[:2]), kernel(*given)))
    estimates = noisy(*SHAPES["triples"], total=200.0)
    automatic(estimates, workers=pool)
    assert max(last for _, last in ranges) == estimates.layout.outer
    ranges.clear()
    automatic(estimates)
    assert max(last for _, last in ranges) == len(estimates.layout.sets)


def test_workers_without_memory_for_the_rule_are_refused(four, pool):
    four.run(_little_memory, True)
    try:
        with refused("the share of 4 workers of one machine needs", MemoryLimitError):
            automatic(noisy(*SHAPES["triples"]), workers=pool)
    finally:
        four.run(_little_memory, False)


DOMAIN = Domain.fromdict({"age": 4, "sex": 2, "region": 3, "work": 3})
WORKLOAD = mg.Workload.all_kway(DOMAIN, 2)
NOISY = Measurements.from_marginals(
    DOMAIN,
    [
        (names, np.random.default_rng(k).normal(5, 9, DOMAIN.project(names).shape), 81.0)
        for k, names in enumerate(WORKLOAD)
    ],
)


@pytest.mark.parametrize("weights", ["auto", "paper"])
def test_the_verb_divides_the_work(four, weights):
    method = mg.methods.NonNegative(weights=weights)
    alone = mg.reconstruct(NOISY, WORKLOAD, method=method)
    divided = mg.reconstruct(NOISY, WORKLOAD, method=method, workers=four)
    np.testing.assert_allclose(divided.marginals, alone.marginals, rtol=0, atol=1e-12 * alone.marginals[0])
    # How the work was divided is not part of what was made.
    assert divided.method == alone.method
    if divided.solution.steps:
        with refused("the release to start from was loaded, or made by workers, and does not record the state"):
            mg.reconstruct(NOISY, WORKLOAD, method=method, start=divided)


@pytest.mark.parametrize("workers", [0, -1, True, 2000, 1.5, "four", "http://host:8786", object(), []])
def test_what_cannot_work_is_refused(workers):
    with refused(
        f"workers is {workers!r}; give a number of processes from 1 to 1,024, the address of a Dask scheduler"
    ):
        mg.reconstruct(NOISY, WORKLOAD, workers=workers)


@pytest.mark.parametrize("workers", [None, 1, np.int64(2), 1024, "tcp://host:8786", "tls://host:8786"])
def test_what_may_work_is_not_refused_before_it_is_tried(workers):
    workers_module.require_workers(workers)


@pytest.mark.parametrize("method", ["mle", "trunc", "trunc+rescale"])
def test_methods_without_rounds_have_nothing_to_divide(method):
    with refused(f"method {method!r} does not use workers; leave out workers (--workers)"):
        mg.reconstruct(NOISY, WORKLOAD, method=method, workers=2)


def test_without_the_extra_the_remedy_is_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with refused("workers need the package distributed, which is not installed; pip install 'margrave[workers]'"):
        mg.reconstruct(NOISY, WORKLOAD, workers=2)


def test_a_scheduler_that_does_not_answer_is_named(monkeypatch):
    monkeypatch.setattr(workers_module, "_CONNECT_SECONDS", 0.3)
    with refused("no Dask scheduler answers at tcp://127.0.0.1:9 (OSError); check the address, or start one"):
        mg.reconstruct(NOISY, WORKLOAD, workers="tcp://127.0.0.1:9")


def test_processes_that_do_not_start_are_waited_for_no_longer_than_that(monkeypatch):
    monkeypatch.setattr(workers_module, "_CONNECT_SECONDS", 0.5)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with refused("2 workers did not start within 0.5 s (they said nothing); use fewer, or none"):
        mg.reconstruct(NOISY, WORKLOAD, workers=2)


def test_a_worker_with_another_version_is_refused(four, monkeypatch):
    monkeypatch.setattr(mg, "__version__", "0.0.7")
    with refused(" and the session 0.0.7; install one of them"):
        mg.reconstruct(NOISY, WORKLOAD, workers=four)


def test_a_worker_without_memory_is_refused(four, pool, monkeypatch):
    """The worker asks for the parts of all four that run on its machine."""
    four.run(_little_memory, True)
    try:
        with refused("the share of 4 workers of one machine needs", MemoryLimitError):
            reconstruct_nonnegative(noisy(*SHAPES["triples"]), workers=pool)
    finally:
        four.run(_little_memory, False)


def _little_memory(little):
    import margrave.memory

    if little:
        margrave.memory.kept, margrave.memory.available_bytes = margrave.memory.available_bytes, lambda: 1000
    else:
        margrave.memory.available_bytes = margrave.memory.kept


@pytest.mark.parametrize("when", [1, 12])
def test_a_worker_that_dies_ends_the_run_with_one_sentence(tmp_path, when):
    """Killed at the first or the twelfth pass; the measurements are as they were, and give the tables afterwards."""
    NOISY.save(tmp_path / "noisy.npz")
    before = (tmp_path / "noisy.npz").read_bytes()
    values = NOISY.values.copy()
    with workers_module._local_client(2) as client:
        calls, ask = [], workers_module._RemoteParts.call

        def call(parts, name, *arguments, **options):
            calls.append(name)
            if len(calls) == 2 + when:
                victim = sorted(client.run(os.getpid).values())[0]
                os.kill(victim, signal.SIGKILL)
            return ask(parts, name, *arguments, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(workers_module._RemoteParts, "call", call)
            text = "1 of 2 workers were lost while tables were reconstructed"
            with refused(text) as caught:
                mg.reconstruct(NOISY, WORKLOAD, method=mg.methods.NonNegative(weights="paper"), workers=client)
    assert caught.value.remedy.startswith("the measurements are as they were: do it again")
    assert np.array_equal(NOISY.values, values)
    assert (tmp_path / "noisy.npz").read_bytes() == before
    assert mg.reconstruct(NOISY, WORKLOAD, method="lnn").solution.status is Status.SOLVED


def test_a_worker_that_dies_while_the_rule_is_applied_is_one_sentence_too():
    workload = mg.Workload.all_kway(DOMAIN, 3)
    with workers_module._local_client(2) as client, pytest.MonkeyPatch.context() as patch:
        calls, ask = [], Actors.call

        def call(parts, name, *arguments, **options):
            calls.append(name)
            if name == "weigh":
                os.kill(sorted(client.run(os.getpid).values())[0], signal.SIGKILL)
            return ask(parts, name, *arguments, **options)

        patch.setattr(Actors, "call", call)
        with refused("1 of 2 workers were lost while tables were estimated"):
            mg.reconstruct(NOISY, workload, workers=client)


def test_a_problem_makes_room_for_the_next_one(four):
    """Learning errors solves several problems; workers hold the arrays of one at a time."""
    with worker_pool(four) as pool:
        made = [
            pool.divide(Problem(one.layout, one.values, np.ones(len(one.layout.sets))))
            for one in [noisy(*SHAPES["triples"])] * 3
        ]
        assert [len(parts) for parts in made] == [0, 0, 4]
    assert len(made[-1]) == 0


SAVED = {
    "triples, with errors": (mg.Workload.all_kway(DOMAIN, 3), "lnn", True),
    "tables inside others, as CSV too": (mg.Workload.up_to(DOMAIN, 2), "mle", False),
    "tables that disagree": (mg.Workload(DOMAIN, [("age", "sex"), ("sex", "region"), ("work",)]), "trunc", False),
    "the total alone": (mg.Workload(DOMAIN, [()]), "lnn", False),
}


@pytest.mark.parametrize("how", SAVED)
def test_workers_write_the_files_that_one_process_writes(four, tmp_path, how):
    workload, method, errors = SAVED[how]
    release = mg.reconstruct(NOISY, workload, method=method, errors=errors)
    done = []
    for folder, workers in (("alone", None), ("divided", four)):
        release.save(tmp_path / folder, csv="CSV" in how, workers=workers, progress=lambda *now: done.append(now))
        assert done[-1] == (len(workload), len(workload))
    files = sorted(path.relative_to(tmp_path / "alone") for path in (tmp_path / "alone").rglob("*") if path.is_file())
    assert sum(file.suffix == ".parquet" for file in files) == len(workload)
    for file in files:
        # The manifest and the README say when they were written.
        if file.parts[0] == "tables" or file.suffix == ".npz":
            assert (tmp_path / "divided" / file).read_bytes() == (tmp_path / "alone" / file).read_bytes(), file
    loaded = mg.load(tmp_path / "divided")
    np.testing.assert_array_equal(loaded.marginals, release.marginals)


def test_large_workloads_are_sent_in_pieces(four, tmp_path, monkeypatch):
    monkeypatch.setattr(saving, "_CELLS_AT_ONCE", 5)
    calls, call = [], Actors.call
    monkeypatch.setattr(Actors, "call", lambda self, *given: calls.append(given[0]) or call(self, *given))
    release = mg.reconstruct(NOISY, WORKLOAD, method="mle")
    release.save(tmp_path / "divided", workers=four)
    assert calls == ["write", "write"]
    np.testing.assert_array_equal(mg.load(tmp_path / "divided").marginals, release.marginals)


def test_a_worker_that_dies_while_writing_leaves_no_folder(tmp_path):
    release = mg.reconstruct(NOISY, WORKLOAD, method="mle")
    with workers_module._local_client(2) as client:
        ask = Actors.call

        def call(actors, *arguments):
            os.kill(sorted(client.run(os.getpid).values())[0], signal.SIGKILL)
            return ask(actors, *arguments)

        with pytest.MonkeyPatch.context() as patch, refused("1 of 2 workers were lost while tables were written"):
            patch.setattr(Actors, "call", call)
            release.save(tmp_path / "divided", workers=client)
    assert not list(tmp_path.iterdir())
    release.save(tmp_path / "divided")


def test_a_worker_that_does_not_see_the_folder_is_refused(four, tmp_path, monkeypatch):
    monkeypatch.setattr(saving, "str", lambda draft: f"{draft}-elsewhere", raising=False)
    release = mg.reconstruct(NOISY, WORKLOAD, method="mle")
    with refused("-elsewhere; name one on a file system that all workers share, or save without workers", StoreError):
        release.save(tmp_path / "divided", workers=four)
    assert not list(tmp_path.iterdir())


def test_a_publication_has_workers_and_a_folder_for_large_arrays(four, tmp_path):
    plain, divided = (
        mg.Publication(tmp_path / "plain"),
        mg.Publication(tmp_path / "divided", workers=four, scratch=tmp_path),
    )
    for publication in (plain, divided):
        publication.check(WORKLOAD)
        publication.publish(NOISY, WORKLOAD)
    one, other = mg.load(tmp_path / "plain"), mg.load(tmp_path / "divided")
    np.testing.assert_allclose(other.marginals, one.marginals, rtol=0, atol=1e-12 * one.marginals[0])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["divided", "plain"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"workers": 0}, "workers is 0; give a number of processes"),
        ({"workers": 2, "method": "mle"}, "method 'mle' does not use workers; leave out workers"),
        ({"scratch": "nowhere"}, "nowhere is not a folder that can be written to"),
    ],
)
def test_what_could_not_be_done_later_is_refused_before_anything_is_spent(tmp_path, options, text):
    with refused(text, MargraveError):
        mg.Publication(tmp_path / "release", **options).check(WORKLOAD)


def test_processes_that_were_started_end_with_the_run_and_leave_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    started, start = [], subprocess.Popen

    def watched(*arguments, **options):
        started.append(start(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(workers_module.subprocess, "Popen", watched)
    assert mg.reconstruct(NOISY, WORKLOAD, workers=2).solution.status is Status.SOLVED
    assert len(started) == 2
    assert all(one.poll() is not None for one in started)
    assert not list(tmp_path.iterdir())


class Somewhere:
    """An object that says which process it is in."""

    def process(self):
        return os.getpid()

    def close(self):
        pass


def test_each_worker_has_an_object_of_its_own_in_its_own_process(four):
    addresses = sorted(four.scheduler_info(n_workers=-1)["workers"])
    actors = Actors(four, Somewhere, addresses, "processes were named")
    found = actors.call("process", [()] * 4)
    actors.close()
    assert len(set(found)) == 4
    assert os.getpid() not in found


@pytest.mark.parametrize(("threads", "each"), [(1, "1"), (3, "1"), (9, "4")])
def test_workers_share_the_threads_of_the_process_that_started_them(monkeypatch, threads, each):
    monkeypatch.setattr(workers_module, "thread_count", lambda: threads)
    with workers_module._local_client(2) as client:
        assert set(client.run(os.getenv, "MARGRAVE_THREADS").values()) == {each}


def test_keys_are_read_by_their_owner_alone(tmp_path, monkeypatch):
    """Whoever has the key can run code in a worker."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with workers_module._local_client(1) as client:
        (folder,) = tmp_path.iterdir()
        assert folder.stat().st_mode & 0o077 == 0
        assert client.scheduler.address.startswith("tls://127.0.0.1:")


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 50])
def test_tables_are_divided_into_ranges_of_about_equal_cells(workers):
    layout = Layout.of((9, 2, 7, 3, 5, 4), list(combinations(range(6), 3)))
    ranges = partition(layout, workers)
    assert [first for first, _ in ranges] == [layout.outer, *(last for _, last in ranges[:-1])]
    assert ranges[-1][1] == len(layout.sets)
    assert 1 <= len(ranges) <= min(workers, 20)
    cells = [int(layout.index.offset[last] - layout.index.offset[first]) for first, last in ranges]
    largest = int(np.diff(layout.index.offset)[layout.outer :].max())
    assert max(cells) <= (layout.cells - layout.inner_cells) / workers + largest


@pytest.mark.parametrize(("sizes", "order"), [((10,) * 12, 3), ((4,) * 20, 3), ((4,) * 12, 4), ((20,) * 30, 2)])
def test_a_part_takes_the_memory_that_its_worker_asks_for(monkeypatch, sizes, order):
    """All passes, with messages in and out: at most what is asked for, and no less than 0.85 of it."""
    monkeypatch.setattr(workers_module, "prepare_worker", lambda *_: None)
    layout = Layout.of(sizes, list(combinations(range(len(sizes)), order)))
    own, draw = layout.restricted(*partition(layout, 4)[0]), np.random.default_rng(0)
    inner, penalties = draw.normal(size=own.inner_cells), (np.arange(len(own.sets)) >= own.outer).astype(float)
    passes = [
        *[("lay_out", ROUNDS, inner), ("begin", ROUNDS, penalties), ("step", ROUNDS, inner, 1.6)],
        *[("step", ROUNDS, inner, 1.6, 1.0), ("look", ROUNDS, inner), ("bound", ROUNDS)],
        *[("write_tables", ROUNDS, inner, REPAIR), ("begin", REPAIR, penalties), ("step", REPAIR, inner, 1.0)],
        *[("distance", ROUNDS, inner, REPAIR), ("loss", REPAIR), ("violations", REPAIR, 60.0)],
        *[("deficits", REPAIR, 0.1), ("lift", REPAIR, 0.1, inner, 0.9)],
    ]

    def run():
        actor = workers_module._PartActor()
        actor.open("", 1, own.index, own.outer, own.facet_cells, np.ones(len(own.sets)))
        actor.fill(0, np.zeros(own.cells - own.inner_cells))
        for name, *arguments in passes:
            message = pickle.dumps(arguments)
            found = actor.run(name, *pickle.loads(message))
            del message
            pickle.dumps(found)

    run()  # compiles the loops
    peaks = []
    for _ in range(3):
        tracemalloc.start()
        run()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    peak = min(peaks)  # the threads of the workers' client take memory, too, now and then
    asked = memory_of_part(own.index, own.outer, own.facet_cells)
    assert 0.85 * asked <= peak <= asked


def test_a_restricted_layout_knows_its_own_tables_alone():
    layout = Layout.of((3, 2, 4, 2), list(combinations(range(4), 3)))
    part = layout.restricted(layout.outer + 1, layout.outer + 3)
    assert part.sets == layout.sets[: layout.outer] + layout.sets[layout.outer + 1 : layout.outer + 3]
    tables = np.random.default_rng(0).normal(size=part.cells)
    fresh = Layout.of(layout.sizes, part.sets)
    # The same tables laid out by themselves: inner tables that lie in no table of the part are outer ones there.
    weights = dict(zip(part.sets, (np.arange(len(part.sets)) >= part.outer).astype(float), strict=True))
    moved = np.concatenate([part.view(tables, part.places[one]).ravel() for one in fresh.sets])
    expected = transform.adjoint(fresh, moved, weights=np.array([weights[one] for one in fresh.sets]))
    found = transform.adjoint(part, tables, weights=transform.outer_weights(part))
    for one in fresh.sets:
        np.testing.assert_allclose(
            part.view(found, part.places[one]), fresh.view(expected, fresh.places[one]), atol=1e-13
        )
    assert layout.within.outer == len(layout.within.sets) == layout.outer
    assert layout.within.cells == layout.inner_cells
