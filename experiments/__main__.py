"""``python -m experiments``: the paper's experiments, and ours, on public benchmark data. Not private."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from experiments import ExperimentError
from margrave.cli.screen import Screen, console, described_progress

if TYPE_CHECKING:
    from experiments.settings import Settings

Number = TypeVar("Number", int, float)

reproduce = typer.Typer(
    name="experiments",
    help="Run the paper's experiments on public benchmark data. NOT PRIVATE: results are made with the true counts.",
    no_args_is_help=True,
)

Data = Annotated[Path, typer.Option(help="Folder with NAME.csv.gz (codes 0, 1, …) and NAME-domain.json.")]
Out = Annotated[Path, typer.Option(help="Folder of results; a run that was interrupted goes on where it stopped.")]
Datasets = Annotated[str, typer.Option(help="Names, with commas between.")]
Epsilons = Annotated[str, typer.Option(help="Privacy budgets, with commas between.")]
Rounds = Annotated[str, typer.Option(help="Numbers of rounds, with commas between.")]
Trials = Annotated[int, typer.Option(help="Draws of the noise at each setting.")]
Methods = Annotated[str, typer.Option(help="Keys of methods, with commas between; all by default.")]
Delta = Annotated[float, typer.Option(help="δ of the budgets.")]
MaxSteps = Annotated[int, typer.Option(help="Rounds of the non-negative solver; errors have settled by the default.")]
Repeat = Annotated[bool, typer.Option("--repeat", help="Let a table be chosen more than once, as the paper prints it.")]
Seed = Annotated[int, typer.Option(help="From which the seed of every trial follows.")]
Jobs = Annotated[int, typer.Option(help="Trials at once, each in a process; cores are shared out.")]
LimitSeconds = Annotated[float, typer.Option(help="Time limit of one run of Private-PGM.")]
LimitGb = Annotated[float, typer.Option(help="Memory limit of one run of Private-PGM, in gigabytes.")]
Retry = Annotated[bool, typer.Option("--retry", help="Run again what ended without a result.")]
Figures = Annotated[bool, typer.Option(help="Draw figures (extra report).")]

_DATASETS, _EPSILONS, _ROUNDS = "titanic,adult,salary,nist-taxi", "0.1,0.31,1,3.16,10", "10,20,30"
_OUT = Path("results")


@reproduce.command("residual-planner")
def residual_planner(
    data: Data,
    out: Out = _OUT,
    datasets: Datasets = _DATASETS,
    epsilons: Epsilons = _EPSILONS,
    trials: Trials = 5,
    methods: Methods = "",
    delta: Delta = 1e-9,
    max_steps: MaxSteps = 400,
    seed: Seed = 0,
    jobs: Jobs = 1,
    retry: Retry = False,
    figures: Figures = True,
) -> None:
    """Compare reconstructions of ResidualPlanner's measurements of all 3-way tables.

    Example:  python -m experiments residual-planner --data benchmarks/ --datasets titanic --trials 2
    """
    from experiments.settings import Settings

    settings = Settings(
        "residual-planner",
        data,
        datasets=_names(datasets),
        epsilons=_numbers("epsilons", epsilons, float),
        trials=trials,
        methods=_names(methods),
        delta=delta,
        max_steps=max_steps,
        seed=seed,
        jobs=jobs,
        retry=retry,
    )
    _run(settings, out, figures)


@reproduce.command("mwem")
def mwem(
    data: Data,
    out: Out = _OUT,
    datasets: Datasets = _DATASETS,
    epsilons: Epsilons = _EPSILONS,
    rounds: Rounds = _ROUNDS,
    trials: Trials = 5,
    pgm_trials: Annotated[int, typer.Option(help="In how many of them to run Private-PGM too (extra pgm).")] = 1,
    methods: Methods = "",
    delta: Delta = 1e-9,
    max_steps: MaxSteps = 400,
    repeat: Repeat = False,
    seed: Seed = 0,
    jobs: Jobs = 1,
    limit_seconds: LimitSeconds = 600.0,
    limit_gb: LimitGb = 20.0,
    retry: Retry = False,
    figures: Figures = True,
) -> None:
    """Compare reconstructions of Scalable MWEM's measurements, Private-PGM among them.

    Example:  python -m experiments mwem --data benchmarks/ --datasets titanic --rounds 10 --pgm-trials 0
    """
    from experiments.settings import Settings

    settings = Settings(
        "mwem",
        data,
        datasets=_names(datasets),
        epsilons=_numbers("epsilons", epsilons, float),
        rounds=_numbers("rounds", rounds, int),
        trials=trials,
        methods=_names(methods),
        pgm_trials=pgm_trials,
        delta=delta,
        max_steps=max_steps,
        repeat=repeat,
        seed=seed,
        limit_seconds=limit_seconds,
        limit_gb=limit_gb,
        jobs=jobs,
        retry=retry,
    )
    _run(settings, out, figures)


@reproduce.command("pgm-table")
def pgm_table(
    data: Data,
    out: Out = _OUT,
    datasets: Datasets = _DATASETS,
    epsilons: Epsilons = _EPSILONS,
    rounds: Rounds = _ROUNDS,
    trials: Trials = 1,
    delta: Delta = 1e-9,
    max_steps: MaxSteps = 400,
    repeat: Repeat = False,
    seed: Seed = 0,
    jobs: Jobs = 1,
    limit_seconds: LimitSeconds = 600.0,
    limit_gb: LimitGb = 20.0,
    retry: Retry = False,
) -> None:
    """Count in how many trials of Scalable MWEM Private-PGM runs within limits; its error beside ours.

    It shares the file of results with "mwem": what was run there is not run again.

    Example:  python -m experiments pgm-table --data benchmarks/ --datasets titanic --limit-seconds 120
    """
    from experiments.settings import Settings

    settings = Settings(
        "mwem",
        data,
        datasets=_names(datasets),
        epsilons=_numbers("epsilons", epsilons, float),
        rounds=_numbers("rounds", rounds, int),
        trials=trials,
        methods=("ours", "private-pgm"),
        pgm_trials=trials,
        delta=delta,
        max_steps=max_steps,
        repeat=repeat,
        seed=seed,
        limit_seconds=limit_seconds,
        limit_gb=limit_gb,
        jobs=jobs,
        retry=retry,
    )
    _run(settings, out, figures=False)


@reproduce.command("scaling")
def scaling(
    out: Out = _OUT,
    attributes: Annotated[str, typer.Option(help="Numbers of attributes, with commas.")] = "10,20,30,50,70,100,150,200",
    values: Annotated[int, typer.Option(help="Values of each attribute.")] = 10,
    other_values: Annotated[str, typer.Option(help="Values of each of 20 attributes, a second series.")] = "2,5,20,40",
    rows: Annotated[int, typer.Option(help="Rows, made up.")] = 20_000,
    data: Annotated[Path | None, typer.Option(help="Not needed: rows are made up.", hidden=True)] = None,
    figures: Figures = True,
) -> None:
    """Measure time and memory of every step against the number of attributes and of cells, on made-up rows.

    Example:  python -m experiments scaling --attributes 10,20,50
    """
    from experiments.figures import draw_scaling, require_altair
    from experiments.pages import write_summary
    from experiments.scaling import run_scaling, sizes

    counts = _numbers("attributes", attributes, int)
    others = _numbers("other-values", other_values, int) if other_values else ()
    wanted = sizes(counts, values=values, other_values=others, rows=rows)
    if figures:
        require_altair()
    with described_progress() as advance:
        found = run_scaling(wanted, out, progress=advance)
    drawn = draw_scaling(found, out) if figures else []
    _tell([*drawn, *write_summary(out)])


@reproduce.command("peers")
def peers(
    data: Annotated[Path | None, typer.Option(help="Folder of the tables that are not generated.")] = None,
    out: Out = _OUT,
    datasets: Annotated[str, typer.Option(help="Names, with commas; generated tables need no --data.")] = "",
    epsilons: Epsilons = _EPSILONS,
    methods: Methods = "",
    trials: Trials = 5,
    slow_trials: Annotated[int, typer.Option(help="Draws of the noise for AIM and MST, at ε = 0.1, 1, 10.")] = 1,
    order: Annotated[int, typer.Option(help="All tables of so many attributes: 2 or 3.")] = 3,
    delta: Delta = 1e-9,
    seed: Seed = 0,
    limit_seconds: Annotated[float, typer.Option(help="Processor time of one run of AIM or MST.")] = 900.0,
    limit_gb: Annotated[float, typer.Option(help="Memory of one run of AIM or MST, in gigabytes.")] = 8.0,
    retry: Retry = False,
    figures: Figures = True,
) -> None:
    """Compare margrave with AIM and MST at equal budget, on public and on generated tables.

    Example:  python -m experiments peers --datasets binary-1,wide-1 --epsilons 1 --trials 2
    """
    from experiments.figures import require_altair
    from experiments.pages import NOT_PRIVATE
    from experiments.peers import DATASETS, FILE, PeerSettings, run_peers
    from experiments.peers_page import draw_peers, write_peers_page

    settings = PeerSettings(
        data,
        datasets=_names(datasets) or DATASETS,
        epsilons=_numbers("epsilons", epsilons, float),
        methods=_names(methods),
        trials=trials,
        slow_trials=slow_trials,
        order=order,
        delta=delta,
        seed=seed,
        limit_seconds=limit_seconds,
        limit_gb=limit_gb,
        retry=retry,
    )
    if figures:
        require_altair()
    Screen(stderr=True).print(NOT_PRIVATE, style="bold red")
    with described_progress() as advance:
        records = run_peers(settings, out, progress=advance)
    drawn = draw_peers(records, out) if figures else []
    _tell([out / FILE, *drawn, write_peers_page(records, out)])


@reproduce.command("coverage")
def coverage(
    data: Annotated[Path | None, typer.Option(help="Folder of the tables that are not generated.")] = None,
    out: Out = _OUT,
    datasets: Annotated[str, typer.Option(help="Names, or sets of generated tables, with commas.")] = "fresh",
    epsilons: Epsilons = "0.1,1,10",
    mechanisms: Annotated[str, typer.Option(help="How to measure, with commas.")] = "planner,nonnegative,adaptive,mwem",
    methods: Annotated[str, typer.Option(help="How to reconstruct, with commas.")] = "lnn",
    trials: Trials = 3,
    attributes: Annotated[int, typer.Option(help="The first so many attributes of each table; 0 for all.")] = 8,
    delta: Delta = 1e-9,
    seed: Seed = 0,
) -> None:
    """Compare intervals of published counts with the truth: how often they cover it, and how wide they are.

    Example:  python -m experiments coverage --datasets chains,titanic --data benchmarks/ --epsilons 1
    """
    from experiments.coverage import FILE, CoverageSettings, run_coverage, write_coverage_page
    from experiments.pages import NOT_PRIVATE

    settings = CoverageSettings(
        data,
        datasets=_names(datasets),
        epsilons=_numbers("epsilons", epsilons, float),
        mechanisms=_names(mechanisms),
        methods=_names(methods),
        trials=trials,
        attributes=attributes,
        delta=delta,
        seed=seed,
    )
    Screen(stderr=True).print(NOT_PRIVATE, style="bold red")
    with described_progress() as advance:
        records = run_coverage(settings, out, progress=advance)
    _tell([out / FILE, write_coverage_page(records, out)])


def _run(settings: Settings, out: Path, figures: bool) -> None:
    """Run an experiment, write its figures and the summary of the folder, and say where they are."""
    from experiments.figures import draw_experiment, require_altair
    from experiments.pages import NOT_PRIVATE, write_summary
    from experiments.runs import results_file, run_experiment

    if figures:
        require_altair()
    Screen(stderr=True).print(NOT_PRIVATE, style="bold red")
    with described_progress() as advance:
        records = run_experiment(settings, out, progress=advance)
    drawn = draw_experiment(records, settings.experiment, out) if figures else []
    _tell([results_file(out, settings.experiment), *drawn, *write_summary(out)])


def _tell(files: list[Path]) -> None:
    """Say which files were written."""
    screen = console()
    for file in files:
        screen.print(f"wrote {file}")


def _names(text: str) -> tuple[str, ...]:
    """Return what stands between commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _numbers(option: str, text: str, kind: Callable[[str], Number]) -> tuple[Number, ...]:
    """Return the positive numbers that stand between commas."""
    try:
        found = tuple(kind(part) for part in _names(text))
    except ValueError:
        found = ()
    if not found or not all(number > 0 for number in found):
        raise ExperimentError(f"--{option} is {text!r}; give positive numbers with commas between, as in 1,10")
    return found


if __name__ == "__main__":
    import sys

    from margrave.cli.app import run

    sys.exit(run(sys.argv[1:], reproduce))
