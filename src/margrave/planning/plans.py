r"""Plans: the noise of every residual of a workload, what it costs, and the errors to expect; no data is touched.

The best variances σ²_τ are real numbers; the noise that is drawn has a rational variance g²_τ on the integer residual
(``coefficients``). So g²_τ = σ²_τ n_τ² is rounded *up*, by at most 2⁻²⁰ of itself, to a number of 22 binary digits:
it is a float64 and a fraction at once, is stored as used, and the exact costs c² ∏ n_k(n_k − 1) / 2g²_τ add up to

    ρ (1 − 2⁻¹⁸)  ≤  Σ_τ ρ_τ  ≤  ρ.                                                                               (1)

A plan that breaks the right-hand side cannot be made: `Plan` compares a proven bound (``cost_bound``) with ρ.

**Targets** are margins of error that some tables must have, within a budget (`plan_for_targets`). A plan divides the
budget by the weights of tables, so targets are met by weights: those of the tables that miss their target are raised
until none does. Whether that is possible at all is known first: the least budget that meets all targets is that of the
plan for these tables alone that minimises max_T Var_T/m_T² ("max_variance"), because variances are inversely
proportional to ρ.

    ρ_least = ρ · z² · max_T Var_T(ρ)/m_T²,        m_T the margin asked for, z its normal quantile.                  (2)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import TypeVar

import numpy as np

from margrave.algebra import transform
from margrave.algebra.kernels import Floats, Integers
from margrave.algebra.layout import Layout
from margrave.discrete_gaussian import exact_variance
from margrave.errors import PlanError, suggestion
from margrave.planning.allocation import (
    NO_ROWS,
    OBJECTIVES,
    ROWS_REMEDY,
    TOLERANCE,
    allocate,
    closure_weights,
    floor_precisions,
)
from margrave.planning.coefficients import (
    cell_counts,
    cell_variances,
    checked_contributions,
    cost_bound,
    cost_coefficients,
    exact_cost,
    unit_costs,
)
from margrave.planning.expectation import Expectation, is_number, normal_quantile, place_of
from margrave.privacy.budget import Budget, format_budget, require_budget
from margrave.workload import Workload, require_workload

_Array = TypeVar("_Array", Floats, Integers)

# What the samplers of ``privacy.noise`` can draw: variances of discrete Gaussians between these two.
SMALLEST_NOISE, LARGEST_NOISE = Fraction(1, 10**30), Fraction(10**30)
# The default objective of a plan. The command line measures the number of rows first and then plans for "counts".
OBJECTIVE = "nonnegative"
# More rows than any table has; the guarantee does not depend on it.
MOST_PLANNED_ROWS = 1e12
_LARGEST_WEIGHT_RATIO = 1e30
_DIGITS = 22
# Noise is raised by this factor, so that the bound on its cost, above the true cost by up to 2⁻⁴⁰, stays within ρ.
_ROOM = 1 + 2.0**-38
# At least the factor by which noise is raised in all; a budget for a promised margin is raised by it too.
_ROUNDING = 1 + 2.0**-20
# The bisection for small noise stops within this factor of the least budget.
_NEAR = 1 + 2.0**-24
# The level of the margins of targets; how many times weights are raised at most; and the factor on equation (2), a
# little more than that by which the noise of a plan is rounded up.
_AT_LEVEL, _MOST_RAISES, _TARGET_ROOM = 0.95, 60, 1 + 1e-5
Targets = Mapping[tuple[str, ...], float]


@dataclass(frozen=True, eq=False, repr=False)
class Plan(Expectation):
    """How much noise each residual of a workload gets, and what that promises; made by `plan`.

    Attributes
    ----------
    workload
        The tables wanted.
    budget
        What may be spent; the plan spends it, less what is lost by rounding noise up.
    contributions
        The most rows that one person has.
    objective
        What the plan minimises: "total_variance", "table_variance", "max_variance", "nonnegative" or "counts".
    layout
        The closure of the workload; a residual is known by its number in it.
    integer_variances
        Shape (tables,), read-only; g² of the noise on each integer residual, exact numbers of 22 binary digits; zero
        where there is nothing to measure.
    gap
        How far the objective can be from the least possible, relative to that; NaN for "counts", where it is only
        known that no small change improves the plan.
    rows
        For "counts": the number of rows that the plan is made for, as stated; None for other objectives.
    """

    workload: Workload
    budget: Budget
    contributions: int
    objective: str
    layout: Layout
    integer_variances: Floats
    gap: float
    rows: float | None = None

    def __post_init__(self) -> None:
        """Refuse noise that would cost more than the budget, equation (1), and a layout of other tables."""
        object.__setattr__(self, "contributions", checked_contributions(self.contributions))
        layout, workload = self.layout, self.workload
        if layout.sizes != workload.domain.shape or not all(map(layout.places.__contains__, workload.positions)):
            raise PlanError("the layout of this plan is not that of its workload", remedy="make plans with plan()")
        noise = _read_only(transform.one_per_table(self.layout, self.integer_variances).copy())
        object.__setattr__(self, "integer_variances", noise)
        spent = cost_bound(self.layout, noise)
        if not math.isfinite(spent) or Fraction(spent) * self.contributions**2 > self.rho:
            raise PlanError(
                f"the noise of this plan costs more than its budget, {self.budget}", remedy="make plans with plan()"
            )

    @cached_property
    def measured(self) -> Integers:
        """The numbers of the residuals to measure: all except those with an attribute of one value; read-only."""
        return _read_only(np.flatnonzero(cost_coefficients(self.layout)))

    @cached_property
    def variances(self) -> Floats:
        """The exact variance σ²_τ of each residual; zero where nothing is measured; shape (tables,), read-only.

        The noise on the integer residual is discrete: its variance is g²_τ from g²_τ = 2.3 on, and less below
        (``discrete_gaussian``). Divided by n_τ² it is σ²_τ.
        """
        return _read_only(exact_variance(self.integer_variances) / cell_counts(self.layout) ** 2)

    @cached_property
    def precisions(self) -> Floats:
        """π_τ = n_τ²/g²_τ, the weight of each residual in reconstruction; zero where nothing is measured; read-only."""
        noise = self.integer_variances / cell_counts(self.layout) ** 2
        return _read_only(np.divide(1.0, noise, out=np.zeros_like(noise), where=noise > 0))

    @cached_property
    def cell_variances(self) -> Floats:
        """The variance of a cell of each table of the closure under maximum likelihood; shape (tables,), read-only."""
        return _read_only(cell_variances(self.layout, self.variances))

    def noise(self, table: int) -> Fraction:
        """Return g², the exact parameter of the discrete Gaussian on each entry of one integer residual."""
        noise = Fraction(float(self.integer_variances[self._checked(table)]))
        if noise <= 0:  # a zero here must never be read as "no noise needed"
            raise PlanError(
                f"residual {self._label(table)} has an attribute of one value and is identically zero",
                remedy="it is not measured: use plan.measured",
            )
        return noise

    def cost(self, table: int) -> Fraction:
        """Return the exact zCDP cost of measuring one residual; zero where there is nothing to measure."""
        if self.integer_variances[self._checked(table)] == 0:
            return Fraction(0)
        return exact_cost(self.layout.shape(table), self.noise(table), self.contributions)

    def _spent(self) -> Floats:
        return np.bincount(self.layout.index.order, unit_costs(self.layout, self.integer_variances)).astype(np.float64)

    def _objective(self) -> str:
        return self.objective

    def __repr__(self) -> str:
        asked = f"contributions={self.contributions}, objective={self.objective!r}"
        asked += "" if self.rows is None else f", rows={self.rows:,.6g}"
        return f"Plan({self.workload!r}, {self.budget!r}, {asked})"

    def _checked(self, table: int) -> int:
        if not 0 <= table < len(self.layout.sets):
            raise PlanError(
                f"no residual {table!r} in the plan", remedy=f"they are numbered from 0 to {len(self.layout.sets) - 1}"
            )
        return table

    def _label(self, table: int) -> str:
        return _label(self.workload, self.layout, table)


def plan(
    workload: Workload,
    budget: Budget,
    *,
    contributions: int,
    objective: str = OBJECTIVE,
    tolerance: float = TOLERANCE,
    rows: float | None = None,
) -> Plan:
    """Return the plan with the least error that a budget can buy; touches no data.

    Parameters
    ----------
    workload
        The tables wanted, with their weights.
    budget
        What may be spent.
    contributions
        The most rows that one person has in the table; at least 1. It multiplies every standard error, and has no
        default because only the owner of the table knows it.
    objective
        "nonnegative" (the default): for tables without negative counts (method "lnn"), which need the small tables
        inside the wanted ones more than unbiased tables do; the errors that the plan predicts are still those of the
        unbiased tables. "total_variance": least mean squared error of the unbiased tables over all cells, each counted
        with the weight of its table. "table_variance": the same with every table counted alike, whatever its size,
        times its weight. "max_variance": the largest weight times variance of any table is as small as can be.
        "counts": the least expected error of the non-negative counts for this number of ``rows``. With few rows or a
        small budget it leaves alone what noise would drown, and measures the small tables better.
    tolerance
        For "max_variance": how far from the least possible it may stop, relative to that.
    rows
        For "counts": about how many rows the table has. It is a public number, recorded as stated: do not take it from
        the private table (`margrave.residual_planner` with ``total_share`` measures it with noise). The guarantee does
        not depend on it, and a number that is off by a factor of two costs little.
    """
    _check_request(workload, contributions, objective, tolerance)
    stated = checked_rows(rows, objective)
    require_budget(budget)
    layout = Layout.of(workload.domain.shape, workload.positions)
    factor = Fraction(int(contributions) ** 2) / budget.rho
    # Variances are proportional to c²/ρ, so they are found at ρ = c = 1. Only "counts" depends on the budget itself.
    rho = 1.0 if stated is None else _moderate(1 / factor)
    allocation = allocate(workload, layout, objective, rho=rho, tolerance=tolerance, rows=stated)
    noise = _integer_variances(workload, layout, allocation.variances * rho, factor)
    return Plan(workload, budget, int(contributions), objective, layout, noise, allocation.gap, stated)


def checked_rows(rows: object, objective: str) -> float | None:
    """Return the number of rows to plan for as a float: positive for the objective "counts", None for the others."""
    if objective != "counts":
        if rows is not None:
            raise PlanError(f"rows is given, and the objective {objective!r} does not use it", remedy="leave out rows")
        return None
    if rows is None:
        raise PlanError(NO_ROWS, remedy=ROWS_REMEDY)
    if not is_number(rows) or not 1 <= rows <= MOST_PLANNED_ROWS:  # type: ignore[operator]
        raise PlanError(f"rows is {rows!r}", remedy=f"give a number from 1 to {MOST_PLANNED_ROWS:.0e}")
    return float(rows)  # type: ignore[arg-type]


def _moderate(rho: Fraction) -> float:
    """Return ρ as a float, clamped to a range beyond which noise could not be drawn anyway and error curves end."""
    return float(min(max(rho, SMALLEST_NOISE), LARGEST_NOISE))


def budget_for_margin(
    workload: Workload,
    *,
    attributes: Iterable[str],
    margin: float,
    contributions: int,
    objective: str = OBJECTIVE,
    level: float = 0.95,
    tolerance: float = TOLERANCE,
) -> Budget:
    """Return the least budget whose plan has at most this margin of error on a table.

    The parameters of the noise are inversely proportional to ρ. For continuous noise ρ = z² c² V / margin², with V the
    variance of a cell at ρ = 1 and c = 1, and z the normal quantile. Small discrete noise has a smaller variance; then
    ρ is lowered by bisection until the exact margin is met. The result is rounded up, by about 10⁻⁶ of itself, to cover
    the rounding of the noise.

    Parameters
    ----------
    workload, contributions, objective, tolerance
        As for `plan`; the objective "counts" divides every budget in another way, and is refused.
    attributes
        The table: one of the workload, or inside one.
    margin
        Half the width of the confidence interval of a cell, in rows; positive.
    level
        The level of the confidence interval.
    """
    _check_request(workload, contributions, objective, tolerance)
    if objective == "counts":
        raise PlanError(
            "objective 'counts' has no least budget for a margin: it divides every budget in another way",
            remedy="use 'nonnegative', or try budgets with plan(…, objective='counts', rows=…)",
        )
    quantile = normal_quantile(level)
    if not is_number(margin) or not 0 < margin < math.inf:
        raise PlanError(f"margin is {margin!r}", remedy="give a positive number of rows")
    layout = Layout.of(workload.domain.shape, workload.positions)
    place = place_of(workload, layout, attributes)
    allocation = allocate(workload, layout, objective, tolerance=tolerance)
    variance = float(cell_variances(layout, allocation.variances)[place])
    rows = Fraction(margin) if isinstance(margin, int | Fraction) else Fraction(float(margin))
    rho = Fraction(quantile**2 * variance * _ROUNDING) * int(contributions) ** 2 / rows**2
    if SMALLEST_NOISE <= rho <= LARGEST_NOISE:  # beyond, noise cannot be drawn and the plan says so
        noise = allocation.variances * cell_counts(layout) ** 2 * float(int(contributions) ** 2 / rho)
        rho *= Fraction(_discount(layout, noise, place, float(rows) / quantile))
    try:
        return Budget.zcdp(rho=_short(rho))
    except PlanError as error:
        table = _label(workload, layout, place)
        raise PlanError(
            f"a margin of {margin!r} on {table} needs rho = {_rounded(rho)}, and no budget is that "
            f"{'large' if rho > 1 else 'small'}",
            remedy="ask for a margin that makes sense for counts",
        ) from error


def _check_request(workload: Workload, contributions: int, objective: str, tolerance: float) -> None:
    """Refuse what no plan can be made for, before any work."""
    require_workload(workload)
    checked_contributions(contributions)
    if objective not in OBJECTIVES:
        hint = suggestion(objective, OBJECTIVES) if isinstance(objective, str) else ""
        raise PlanError(f"no objective {objective!r}{hint} (there are {', '.join(OBJECTIVES)})")
    if not is_number(tolerance) or not 0 < tolerance < 1:
        raise PlanError(f"tolerance is {tolerance!r}", remedy=f"give a number between 0 and 1, such as {TOLERANCE}")
    check_weights(workload)


def check_weights(workload: Workload) -> None:
    """Refuse weights that differ by too large a factor for floating-point numbers."""
    ratio = float(workload.weights.max()) / float(workload.weights.min())
    if ratio > _LARGEST_WEIGHT_RATIO:
        raise PlanError(
            f"the largest weight is {ratio:.2g} times the smallest",
            remedy=f"keep them within a factor of "
            f"{_LARGEST_WEIGHT_RATIO:.0e}, or leave out the tables that hardly matter",
        )


def _integer_variances(workload: Workload, layout: Layout, variances: Floats, factor: Fraction) -> Floats:
    """Return g²_τ for each residual: the variances at ρ = c = 1, times ``factor`` = c²/ρ, on integers, rounded up."""
    noise = variances * cell_counts(layout) ** 2
    # The cost is 1 up to rounding. Noise times this cost makes it 1 up to an error smaller than _ROOM.
    noise *= math.fsum(unit_costs(layout, noise))
    _check_range(workload, layout, noise, factor)
    return _rounded_up(noise * (float(factor) * _ROOM))


def stage_noise(layout: Layout, precisions: Floats) -> Floats:
    """Return g² of the noise that gives these precisions, less at most 2⁻²⁰ of each; shape (tables,).

    The noise of a stage of a mechanism, exact numbers of 22 binary digits like those of a plan; zero where the
    precision is zero and nothing is measured. Its exact cost is at most that of the precisions.

    Parameters
    ----------
    layout
        The closure.
    precisions
        Shape (tables,); π_τ of each residual.
    """
    measured = precisions > 0
    noise = np.divide(cell_counts(layout) ** 2, precisions, out=np.zeros(len(precisions)), where=measured)
    return _rounded_up(noise * _ROOM)


def noise_bounds(workload: Workload, layout: Layout, budget: Budget, contributions: int) -> tuple[Fraction, Fraction]:
    """Return the least and the largest noise g² that stages of a plan for "counts" can ask for, if it can be drawn.

    No residual gets more than the budget, and each its part of the floor; both are public numbers.

    Parameters
    ----------
    workload, budget, contributions
        As for `plan`.
    layout
        The closure of the workload.
    """
    rho = _moderate(budget.rho / contributions**2)
    floor = stage_noise(layout, floor_precisions(layout, closure_weights(workload, layout), rho=rho))
    most = np.where(layout.degrees > 0, cost_coefficients(layout) * cell_counts(layout) ** 2 / (2 * rho), 0.0)
    # This is the floor of the whole budget. Measuring the total may take half of the budget, which doubles the noise.
    _check_range(workload, layout, np.stack([most, 2 * floor]), Fraction(1))
    return Fraction(float(most[most > 0].min())), Fraction(float(2 * floor.max()))


def _rounded_up(noise: Floats) -> Floats:
    """Return the numbers raised to the next one of 22 binary digits."""
    mantissa, exponent = np.frexp(noise)
    rounded: Floats = np.ldexp(np.ceil(np.ldexp(mantissa, _DIGITS)), exponent - _DIGITS)
    return rounded


def _check_range(workload: Workload, layout: Layout, noise: Floats, factor: Fraction) -> None:
    """Refuse noise, ``factor`` times what is given, of shape (tables,) or (any, tables), that cannot be drawn."""
    largest, smallest = int(noise.argmax()), int(np.where(noise > 0, noise, np.inf).argmin())
    noise, tables = noise.ravel(), len(layout.sets)
    if Fraction(float(noise[largest]) * _ROUNDING) * factor > LARGEST_NOISE:
        place, limit, remedy = (
            largest,
            f"at most {_rounded(LARGEST_NOISE)}",
            "raise the budget, or ask for smaller tables",
        )
    elif Fraction(float(noise[smallest])) * factor < SMALLEST_NOISE:
        place, limit, remedy = smallest, f"at least {_rounded(SMALLEST_NOISE)}", "lower the budget"
    else:
        return
    raise PlanError(
        f"residual {_label(workload, layout, place % tables)} would get noise of variance "
        f"{_rounded(Fraction(float(noise[place])) * factor)} on its integers, which must be {limit}: {remedy}"
    )


def _discount(layout: Layout, noise: Floats, place: int, std_error: float) -> float:
    """Return the share of a budget that is enough for a standard error, if the whole is enough with continuous noise.

    Parameters
    ----------
    layout
        The closure.
    noise
        Shape (tables,); g²_τ at the whole budget.
    place
        The table.
    std_error
        What the standard error of its cells must not exceed.
    """

    def spread(share: float) -> float:
        exact = exact_variance(noise / share) / cell_counts(layout) ** 2
        return math.sqrt(float(cell_variances(layout, exact)[place]))

    if spread(1.0) * _ROUNDING > std_error:
        return 1.0
    low, high = 0.5, 1.0
    while spread(low) <= std_error:
        low, high = low / 2, low
    while high / low > _NEAR:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if spread(middle) > std_error else (low, middle)
    return high * _ROUNDING


def _short(value: Fraction) -> Fraction:
    """Return a positive fraction rounded up to 30 binary digits."""
    shift = 30 - (value.numerator.bit_length() - value.denominator.bit_length())
    scale = Fraction(2) ** shift
    return math.ceil(value * scale) / scale


def _label(workload: Workload, layout: Layout, table: int) -> str:
    """Return the name of a residual for messages."""
    return " × ".join(workload.domain.names(layout.sets[table])) or "total"


def _rounded(value: Fraction) -> str:
    """Return a positive fraction of any size with two digits: 3.4e+400."""
    return f"{Decimal(value.numerator) / Decimal(value.denominator):.1e}"


def _read_only(array: _Array) -> _Array:
    """Return the array as read-only."""
    array.setflags(write=False)
    return array


def plan_for_targets(
    workload: Workload,
    budget: Budget,
    targets: Targets,
    *,
    contributions: int,
    objective: str = OBJECTIVE,
    rows: float | None = None,
) -> Plan:
    """Return a plan in which the tables named have at most the margins of error asked for, at 95 %.

    What the targets leave of the budget is divided by the objective and the weights of the workload. A table that is
    not in the workload is added to it. If there is no such plan, `PlanError` states the budget that it would take.

    Parameters
    ----------
    workload, budget, contributions, objective, rows
        As for `margrave.plan`.
    targets
        Margins by table, as in ``{("age", "sex"): 50}``: half the width of the interval of a cell, in rows.
    """
    margins = {tuple(names): _margin(margin) for names, margin in targets.items()}
    if not margins:
        return plan(workload, budget, contributions=contributions, objective=objective, rows=rows)
    needed = least_budget(workload, margins, contributions=contributions, delta=budget.delta)
    if needed.rho > budget.rho:
        raise _missed(margins, needed, budget)
    wanted = workload | Workload(workload.domain, list(margins))
    weights = dict(zip(wanted.sets, wanted.weights.tolist(), strict=True))
    for _ in range(_MOST_RAISES):
        made = plan(wanted.weighted(weights), budget, contributions=contributions, objective=objective, rows=rows)
        ratios = {names: made.margin_of_error(*names, level=_AT_LEVEL) / margin for names, margin in margins.items()}
        if max(ratios.values()) <= 1:
            return made
        for names, ratio in ratios.items():
            # Var ∝ w^(−1/2) where a table has most of the weight: this power of the ratio corrects it in one step.
            key = workload.domain.names(workload.domain.positions(names))
            weights[key] *= max(ratio, 1.0) ** 4 * (1.02 if ratio > 1 else 1.0)
    raise _missed(margins, needed, budget)


def least_budget(workload: Workload, targets: Targets, *, contributions: int, delta: float | None = None) -> Budget:
    """Return the least budget of any plan that meets all targets, as in equation (2).

    Parameters
    ----------
    workload, contributions
        As for `margrave.plan`; only the domain of the workload matters.
    targets
        As for `plan_for_targets`.
    delta
        The δ at which the budget is stated; by default that of `Budget.zcdp`.
    """
    margins = {tuple(names): _margin(margin) for names, margin in targets.items()}
    alone = Workload(workload.domain, list(margins), weights=[1 / margin**2 for margin in margins.values()])
    made = plan(alone, Budget.zcdp(rho=1), contributions=contributions, objective="max_variance")
    worst = max(made.margin_of_error(*names, level=_AT_LEVEL) / margin for names, margin in margins.items())
    rho = Fraction(worst**2 * _TARGET_ROOM)
    return Budget.zcdp(rho=rho) if delta is None else Budget.zcdp(rho=rho, delta=delta)


def _margin(margin: object) -> float:
    """Return a margin of error as a float, after checking it."""
    if not is_number(margin) or not 0 < float(margin) < math.inf:  # type: ignore[arg-type]
        raise PlanError(f"a target is {margin!r}", remedy="give a positive number of rows")
    return float(margin)  # type: ignore[arg-type]


def _missed(margins: Mapping[tuple[str, ...], float], needed: Budget, budget: Budget) -> PlanError:
    """Return the error for targets that no plan was found for."""
    named = ", ".join(f"± {margin:g} on {' × '.join(names) or 'the total'}" for names, margin in margins.items())
    return PlanError(
        f"{named}: no plan within {format_budget(budget)} meets this; these tables alone need {format_budget(needed)}",
        remedy="raise the budget, or ask for wider margins",
    )
