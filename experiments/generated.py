"""Generated tables: fifteen to choose parameters on, twelve others to judge with, eight more; alike on every machine.

Nothing in them is private, and none resembles a particular public table. They stand in for what is released in
practice: yes/no surveys, wide questionnaires, amounts with many zeros and a long tail, registers whose attributes
nearly determine one another. The sets come from different families, so that what was chosen on one is not judged by its
own kind:

    choosing    latent classes, Bayesian networks, Gaussian factors, zero-inflated amounts, functions with noise, codes
                inside codes (which "nested" of the second set made us look at, so that it judges no longer)
    judging     panels in time, noisy-or of hidden causes, skip logic, altered templates, counts, trips, payrolls,
                nested codes, decision lists, checksums (which triples show and pairs hardly do)
    fresh       magnets (an Ising model), heavy tails, diagnoses that grow with their number, segregated quarters,
                chains of states, rankings, walks, a few profiles among random answers; to judge intervals with

Needs numpy alone; each table takes less than two seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.int64]
Probabilities = NDArray[np.float64]
Sizes = dict[str, int]
Generator = np.random.Generator

CHOOSING, JUDGING, FRESH = "choosing", "judging", "fresh"
KINDS = (CHOOSING, JUDGING, FRESH)


def generated(kind: str = CHOOSING) -> Iterator[tuple[str, Sizes, Codes]]:
    """Yield the name, the domain and the rows of each table of a set.

    Parameters
    ----------
    kind
        "choosing", "judging" or "fresh".
    """
    for name in names(kind):
        yield (name, *generate(name))


def names(kind: str = CHOOSING) -> tuple[str, ...]:
    """Return the names of the tables of a set."""
    if kind not in _TABLES:
        raise ValueError(f"kind is {kind!r}; give {CHOOSING!r}, {JUDGING!r} or {FRESH!r}")
    return tuple(_TABLES[kind])


def generate(name: str) -> tuple[Sizes, Codes]:
    """Return the domain {attribute: size} and the rows, shape (rows, attributes), of a table by its name."""
    for number, (kind, tables) in enumerate(_TABLES.items()):
        if name in tables:
            seed = (20_260_000, number, list(_TABLES[kind]).index(name))
            columns, sizes = tables[name](np.random.default_rng(seed))
            domain = {f"a{place}": int(size) for place, size in enumerate(sizes)}
            rows = np.column_stack([np.clip(column, 0, size - 1) for column, size in zip(columns, sizes, strict=True)])
            return domain, rows.astype(np.int64)
    raise ValueError(
        f"no generated table {name!r}; there are {', '.join(name for kind in KINDS for name in names(kind))}"
    )


# ---------------------------------------------------------------------------------------------------------- drawing


def _draw(draw: Generator, profiles: Probabilities, which: Codes) -> Codes:
    """Return one value for each row, from the row of ``profiles`` that ``which`` names."""
    cumulative = np.cumsum(profiles, axis=1)
    cumulative /= cumulative[:, -1:]
    size = profiles.shape[1]
    flat = (cumulative + np.arange(len(profiles))[:, None]).ravel()
    found = np.searchsorted(flat, which + draw.random(len(which)), side="right") - which * size
    return np.asarray(np.clip(found, 0, size - 1), dtype=np.int64)


def _base(draw: Generator, size: int, skew: float) -> Probabilities:
    """Return shares that fall off like a power, in a random order for nominal attributes half of the time."""
    shares = np.arange(1, size + 1) ** -skew * draw.gamma(4.0, 0.25, size)
    shares = shares / shares.sum()
    return shares if draw.random() < 0.5 else draw.permutation(shares)


def _profiles(draw: Generator, count: int, base: Probabilities, sharpness: float) -> Probabilities:
    """Return distributions around a base: Dirichlet, nearly the base for small sharpness, nearly a point for large."""
    found = draw.gamma(np.maximum(base * len(base) / sharpness, 1e-3), 1.0, (count, len(base))) + 1e-12
    found /= found.sum(axis=1, keepdims=True)
    return found


def _zipf(draw: Generator, rows: int, count: int, skew: float) -> Codes:
    """Return codes with shares that fall off like a power."""
    return _draw(draw, _base(draw, count, skew)[None], np.zeros(rows, dtype=np.int64))


def _quantiles(values: Probabilities, shares: Probabilities) -> Codes:
    """Return numbers cut into groups with these shares."""
    return np.searchsorted(np.quantile(values, np.cumsum(shares)[:-1]), values, side="right")


def _amount(
    draw: Generator, spend: NDArray[np.bool_], centre: Probabilities | float, spread: float, size: int
) -> Codes:
    """Return zero where nothing is spent, else a log-normal amount in steps, the last one open."""
    steps = np.exp(np.asarray(centre) + spread * draw.standard_normal(len(spend)))
    return np.where(spend, 1 + np.minimum(steps.astype(np.int64), size - 2), 0)


def _altered(draw: Generator, column: Codes, size: int, share: float) -> Codes:
    """Return a column in which a share of the values is replaced by any other."""
    return np.where(draw.random(len(column)) < share, draw.integers(0, size, len(column)), column)


def _sizes(draw: Generator, count: int, least: int, most: int) -> list[int]:
    """Return sizes of attributes, small ones more often."""
    return [int(size) for size in least + np.floor((most - least + 1) * draw.random(count) ** 1.2)]


Table = tuple[Sequence[Codes], Sequence[int]]

# ---------------------------------------------------------------------------------------------------- to choose with


def latent_classes(
    draw: Generator, rows: int, sizes: Sequence[int], classes: int, sharpness: float, skew: float = 0.8
) -> Table:
    """Return rows of a mixture: each class has a distribution of its own for every attribute."""
    group = _zipf(draw, rows, classes, 1.0)
    return [_draw(draw, _profiles(draw, classes, _base(draw, size, skew), sharpness), group) for size in sizes], sizes


def bayesian_network(
    draw: Generator, rows: int, sizes: Sequence[int], parents: int, sharpness: float, skew: float = 1.0
) -> Table:
    """Return rows in which each attribute hangs on up to a few of those before it, by one of at most 40 profiles."""
    columns: list[Codes] = []
    for place, size in enumerate(sizes):
        number = min(place, int(draw.integers(0, parents + 1))) if place else 0
        chosen = draw.choice(place, number, replace=False) if place else np.empty(0, dtype=np.int64)
        state = np.zeros(rows, dtype=np.int64)
        for other in chosen:
            state = state * sizes[other] + columns[other]
        most = int(min(40, 1 + state.max()))
        # Neighbouring states share a profile where there are more states than profiles.
        state = state * most // (1 + state.max())
        columns.append(_draw(draw, _profiles(draw, most, _base(draw, size, skew), sharpness), state))
    return columns, sizes


def gaussian_factors(draw: Generator, rows: int, sizes: Sequence[int], factors: int, share: float) -> Table:
    """Return graded answers to questions about a few hidden traits; ``share`` of the variance is the traits'."""
    traits = draw.standard_normal((rows, factors))
    columns = []
    for size in sizes:
        loading = draw.standard_normal(factors) * (draw.random(factors) < 0.6)
        loading /= max(float(np.linalg.norm(loading)), 1e-9)
        values = np.sqrt(share) * traits @ loading + np.sqrt(1 - share) * draw.standard_normal(rows)
        columns.append(_quantiles(values, np.sort(_base(draw, size, 0.9))[:: draw.choice([-1, 1])]))
    return columns, sizes


def household_budget(draw: Generator, rows: int, amounts: Sequence[int], others: Sequence[int]) -> Table:
    """Return amounts that are mostly zero beside what decides about them; some combinations cannot be."""
    age, size_of_age = _quantiles(draw.normal(size=rows), np.full(16, 1 / 16)), 16
    work = _draw(draw, _profiles(draw, 16, _base(draw, 5, 0.5), 2.0), age)
    work = np.where((age < 3) | (age > 12), 0, work)
    columns, sizes = [age, work], [size_of_age, 5]
    for size in others:
        columns.append(_draw(draw, _profiles(draw, 5, _base(draw, size, 1.2), 1.0), work))
        sizes.append(size)
    wealth = 0.6 * draw.standard_normal(rows) + 0.15 * work
    for size in amounts:
        chance = draw.uniform(0.03, 0.5) * np.where(work == 0, draw.choice([0.0, 0.3, 1.0]), 1.0)
        centre = np.log(size / draw.uniform(3, 9)) + draw.uniform(0.3, 1.0) * wealth
        columns.append(_amount(draw, draw.random(rows) < chance, centre, draw.uniform(0.2, 0.8), size))
        sizes.append(size)
        # Round amounts are told more often.
        if draw.random() < 0.5:
            last = columns[-1]
            columns[-1] = np.where((last > 10) & (draw.random(rows) < 0.5), last // 10 * 10, last)
    return columns, sizes


def noisy_functions(draw: Generator, rows: int, sizes: Sequence[int], free: int, noise: float) -> Table:
    """Return attributes of which all but a few are functions of one or two others, with some values replaced."""
    columns = [_zipf(draw, rows, size, 0.7) for size in sizes[:free]]
    for place, size in enumerate(sizes[free:], start=free):
        chosen = draw.choice(place, int(draw.integers(1, 3)), replace=False)
        state = np.zeros(rows, dtype=np.int64)
        for other in chosen:
            state = state * sizes[other] + columns[other]
        states = int(state.max()) + 1
        values = np.sort(draw.integers(0, size, states)) if draw.random() < 0.5 else draw.integers(0, size, states)
        columns.append(_altered(draw, values[state], size, noise * draw.uniform(0.2, 2.0)))
    return columns, sizes


# ----------------------------------------------------------------------------------------------------- to judge with


def panel(draw: Generator, rows: int, waves: int, topics: int) -> Table:
    """Return yes/no answers of people who are asked again and again, and mostly stay with their answer."""
    columns = []
    for _ in range(topics):
        stay, level = draw.uniform(0.75, 0.97), draw.uniform(0.1, 0.6)
        state = (draw.random(rows) < level).astype(np.int64)
        for _ in range(waves):
            columns.append(state)
            state = np.where(draw.random(rows) < stay, state, draw.random(rows) < level).astype(np.int64)
    return columns, [2] * (waves * topics)


def noisy_or(draw: Generator, rows: int, signs: int, causes: int) -> Table:
    """Return rare signs, each brought about by any of a few hidden causes, or by nothing."""
    present = draw.random((rows, causes)) < draw.uniform(0.005, 0.12, causes)
    columns = []
    for _ in range(signs):
        strength = draw.uniform(0.2, 0.95, causes) * (draw.random(causes) < 0.25)
        absent = (1 - draw.uniform(0.001, 0.02)) * np.prod(np.where(present, 1 - strength, 1.0), axis=1)
        columns.append((draw.random(rows) >= absent).astype(np.int64))
    return columns, [2] * signs


def skip_logic(draw: Generator, rows: int, sizes: Sequence[int]) -> Table:
    """Return a questionnaire in which a question is put only to those who gave some answer before; 0 is "not asked"."""
    columns: list[Codes] = []
    for place, size in enumerate(sizes):
        trait = _zipf(draw, rows, size, 0.6)
        if place >= 2:
            gate = int(draw.integers(max(0, place - 5), place))
            asked = columns[gate] >= max(1, sizes[gate] // 2)
            # A question of two values cannot tell "no" from "not asked".
            answer = draw.random(rows) < draw.uniform(0.3, 0.9) if size == 2 else np.maximum(trait, 1)
            alike = (draw.random(rows) < 0.4) & (columns[-1] > 0)
            trait = np.where(asked, np.where(alike, np.minimum(size - 1, columns[-1]), answer), 0)
        columns.append(trait)
    return columns, sizes


def altered_templates(draw: Generator, rows: int, sizes: Sequence[int], templates: int, share: float) -> Table:
    """Return copies of a few hundred rows, each with its own share of answers drawn anew."""
    pattern = np.column_stack([_zipf(draw, templates, size, 1.0) for size in sizes])
    rows_of = pattern[_zipf(draw, rows, templates, 0.9)]
    care = draw.uniform(0, 2 * share, rows)
    new = np.column_stack([_zipf(draw, rows, size, 1.0) for size in sizes])
    mixed = np.where(draw.random(rows_of.shape) < care[:, None], new, rows_of)
    return list(mixed.T), sizes


def counted_events(draw: Generator, rows: int, sizes: Sequence[int], traits: int) -> Table:
    """Return numbers of events with hidden rates that differ much between people."""
    rates = draw.gamma(0.5, 2.0, (rows, traits))
    columns = [
        np.minimum(draw.poisson(draw.uniform(0.1, 0.6) * rates[:, draw.integers(0, traits)]), size - 1)
        for size in sizes
    ]
    return columns, sizes


def trips(draw: Generator, rows: int, places: int, firms: int) -> Table:
    """Return trips between places on a map with their time, length, fare and tip."""
    where = draw.normal(size=(places, 2))
    popular = _base(draw, places, 1.3)
    start = _draw(draw, popular[None], np.zeros(rows, dtype=np.int64))
    distance = np.linalg.norm(where[:, None] - where[None], axis=2)
    pull = popular * np.exp(-1.5 * distance)
    end = _draw(draw, pull / pull.sum(axis=1, keepdims=True), start)
    firm = _draw(draw, _profiles(draw, places, _base(draw, firms, 1.1), 3.0), start)
    hour = _draw(draw, _profiles(draw, places, _base(draw, 24, 0.3), 0.5), start)
    length = distance[start, end] * np.exp(0.15 * draw.standard_normal(rows)) + 0.1
    time = length * np.exp(0.25 * draw.standard_normal(rows)) * (1 + 0.5 * (hour % 12 > 7))
    fare = 0.6 * length + 0.2 * time
    paid = _draw(draw, _profiles(draw, firms, _base(draw, 5, 1.5), 1.0), firm)
    tip = np.where(paid == 0, 0, (draw.random(rows) < 0.9) * (1 + np.minimum(8 * fare * draw.uniform(0.8, 1.2), 10)))
    cut = [_quantiles(value, np.full(12, 1 / 12)) for value in (length, time, fare)]
    return [start, end, firm, hour, *cut, paid, tip.astype(np.int64)], [places, places, firms, 24, 12, 12, 12, 5, 12]


def payroll(draw: Generator, rows: int, offices: int, grades: int, size: int) -> Table:
    """Return staff of offices: the grade sets the pay, most have no extra pay, the office decides about the rest."""
    office = _zipf(draw, rows, offices, 1.1)
    grade = _draw(draw, _profiles(draw, offices, _base(draw, grades, 0.4), 4.0), office)
    pay = np.minimum((grade + 1) * size // (grades + 1) + draw.poisson(0.7, rows), size - 1)
    hired = np.minimum(draw.geometric(0.12, rows) - 1, 29)
    extra = _amount(draw, draw.random(rows) < 0.04 + 0.3 * (office % 7 == 0), np.log(size / 8), 0.7, size)
    bonus = _amount(draw, (grade > grades // 2) & (draw.random(rows) < 0.3), np.log(1 + pay / 6), 0.3, size)
    gross = np.minimum(pay + extra // 3 + bonus // 3, size - 1)
    part = (draw.random(rows) < 0.1 + 0.4 * (grade < 2)).astype(np.int64)
    paid_by = np.where(part == 1, 2, (office % 3 == 0).astype(np.int64))
    columns = [office, grade, pay, hired, extra, bonus, gross, part, paid_by]
    return columns, [offices, grades, size, 30, size, size, size, 2, 3]


def claims(draw: Generator, rows: int, size: int) -> Table:
    """Return insurance policies: hardly any has a claim, and what is claimed hangs on the kind of the damage."""
    region, model = _zipf(draw, rows, 12, 0.8), _zipf(draw, rows, 40, 1.2)
    age = _quantiles(draw.normal(size=rows), np.full(20, 0.05))
    bonus = np.minimum(age, draw.geometric(0.2, rows) - 1)
    count = np.minimum(draw.poisson(0.06 * (1 + 2 * (age < 3)) * (1 + (region == 0)), rows), 3)
    kind = np.where(count > 0, 1 + _draw(draw, _profiles(draw, 40, _base(draw, 6, 1.0), 1.5), model), 0)
    damage = _amount(draw, kind > 0, np.log(size / 6) + 0.25 * kind - 0.7, 0.5, size)
    payout = np.where(damage > 4, damage - draw.integers(1, 4, rows), 0)
    paid = np.where(kind == 0, 0, 1 + (draw.random(rows) < 0.8))
    return [region, model, age, bonus, count, kind, damage, payout, paid], [12, 40, 20, 20, 4, 7, size, size, 3]


def nested_codes(draw: Generator, rows: int, levels: Sequence[int], others: int, noise: float) -> Table:
    """Return codes each of which is part of the one before, and answers that the finest of them nearly settles."""
    fine = _zipf(draw, rows, levels[-1], 0.8)
    columns = [_altered(draw, fine * size // levels[-1], size, noise) for size in levels]
    sizes = [*levels, *_sizes(draw, others, 2, 9)]
    for size in sizes[len(levels) :]:
        columns.append(_draw(draw, _profiles(draw, levels[-1], _base(draw, size, 0.5), 8.0), fine))
    return columns, sizes


def decision_lists(draw: Generator, rows: int, sizes: Sequence[int], free: int, noise: float) -> Table:
    """Return attributes decided by lists of rules: the first rule whose two conditions hold settles the value."""
    columns = [_zipf(draw, rows, size, 0.4) for size in sizes[:free]]
    for place, size in enumerate(sizes[free:], start=free):
        value = np.full(rows, draw.integers(0, size))
        for _ in range(6):
            one, other = draw.choice(place, 2, replace=False)
            holds = (columns[one] == draw.integers(0, sizes[one])) & (columns[other] <= draw.integers(0, sizes[other]))
            value = np.where(holds, draw.integers(0, size), value)
        columns.append(_altered(draw, value, size, noise))
    return columns, sizes


def checksums(draw: Generator, rows: int, sizes: Sequence[int], free: int, noise: float) -> Table:
    """Return attributes of which many are the sum of two others modulo their size: pairs hardly show it."""
    columns = [_zipf(draw, rows, size, 0.3) for size in sizes[:free]]
    for place, size in enumerate(sizes[free:], start=free):
        one, other = draw.choice(place, 2, replace=False)
        columns.append(_altered(draw, (columns[one] + columns[other]) % size, size, noise))
    return columns, sizes


# ------------------------------------------------------------------------------------------ to judge intervals with


def magnets(draw: Generator, rows: int, count: int, strength: float) -> Table:
    """Return yes/no answers that pull at each other in pairs: an Ising model after thirty sweeps of Gibbs sampling."""
    pull = np.triu(strength * draw.standard_normal((count, count)) * (draw.random((count, count)) < 0.4), 1)
    pull, field = pull + pull.T, draw.normal(-0.4, 0.6, count)
    state = np.where(draw.random((rows, count)) < 0.5, 1.0, -1.0)
    for _ in range(30):
        for place in range(count):
            chance = 1 / (1 + np.exp(-2 * (state @ pull[place] + field[place])))
            state[:, place] = np.where(draw.random(rows) < chance, 1.0, -1.0)
    return [(column > 0).astype(np.int64) for column in state.T], [2] * count


def heavy_tails(draw: Generator, rows: int, sizes: Sequence[int], freedom: float) -> Table:
    """Return numbers of a multivariate t distribution in steps of equal length: extremes come together."""
    count = len(sizes)
    root = draw.standard_normal((count, count)) / np.sqrt(count)
    values = draw.standard_normal((rows, count)) @ (root + 0.5 * np.eye(count))
    values *= np.sqrt(freedom / draw.chisquare(freedom, rows))[:, None]
    steps = np.floor(np.array(sizes) / 2 + values * np.array(sizes) / 8)
    return list(steps.astype(np.int64).T), sizes


def diagnoses(draw: Generator, rows: int, sizes: Sequence[int], attraction: float) -> Table:
    """Return patients who each take after an earlier one, or are new: kinds of patients grow as they are met."""
    new = draw.random(rows) < attraction / (attraction + np.arange(rows))
    kind = np.zeros(rows, dtype=np.int64)
    earlier = np.floor(draw.random(rows) * np.arange(rows)).astype(np.int64)
    for row in range(rows):
        kind[row] = row if new[row] else kind[earlier[row]]
    _, kind = np.unique(kind, return_inverse=True)
    columns = []
    for size in sizes:
        typical = _zipf(draw, int(kind.max()) + 1, size, 0.9)
        columns.append(_altered(draw, typical[kind], size, draw.uniform(0.02, 0.35)))
    return columns, sizes


def quarters(draw: Generator, rows: int, places: int, sizes: Sequence[int]) -> Table:
    """Return households of a town whose quarters differ much, smoothly from one to the next; some have few people."""
    where = _draw(draw, draw.dirichlet(np.full(places, 0.5))[None], np.zeros(rows, dtype=np.int64))
    income = np.cumsum(draw.normal(0, 0.5, places))[where] + draw.standard_normal(rows)
    columns = [where, _quantiles(income, np.full(10, 0.1))]
    for size in sizes:
        walk = np.cumsum(draw.normal(0, 0.6, (places, size)), axis=0) + np.log(_base(draw, size, 0.8))
        slope = draw.normal(0, 0.5, size)
        score = walk[where] + income[:, None] * slope + draw.gumbel(size=(rows, size))
        columns.append(np.argmax(score, axis=1))
    return columns, [places, 10, *sizes]


def chains(draw: Generator, rows: int, states: int, steps: int) -> Table:
    """Return the states of people at a few moments; most stay, the others follow a table of moves with many zeros."""
    moves = draw.dirichlet(np.full(states, 0.15), states)
    state = _zipf(draw, rows, states, 1.0)
    columns = []
    for _ in range(steps):
        columns.append(state)
        state = np.where(draw.random(rows) < 0.6, state, _draw(draw, moves, state))
    return columns, [states] * steps


def rankings(draw: Generator, rows: int, items: int, groups: int) -> Table:
    """Return the order that people put things in (none twice, so that many cells must be empty), and their group."""
    group = _zipf(draw, rows, groups, 0.5)
    worth = draw.normal(0, 1.2, (groups, items))
    order = np.argsort(-(worth[group] + draw.gumbel(size=(rows, items))), axis=1)
    return [group, *order.T], [groups, *[items] * items]


def walks(draw: Generator, rows: int, sizes: Sequence[int]) -> Table:
    """Return readings of one thing that drifts: each is near the one before, and the first is near no value."""
    level = draw.standard_normal(rows)
    columns = []
    for size in sizes:
        columns.append(_quantiles(level, np.full(size, 1 / size)))
        level = level + draw.uniform(0.1, 0.7) * draw.standard_normal(rows)
    return columns, sizes


def spread_profiles(draw: Generator, rows: int, sizes: Sequence[int], profiles: int) -> Table:
    """Return a few profiles with shares like a power, and as many people again who answer at random."""
    pattern = np.column_stack([draw.integers(0, size, profiles) for size in sizes])
    chosen = pattern[_zipf(draw, rows, profiles, 1.5)]
    random = np.column_stack([draw.integers(0, size, rows) for size in sizes])
    return list(np.where((draw.random(rows) < 0.5)[:, None], random, chosen).T), sizes


_TABLES: dict[str, dict[str, Callable[[Generator], Table]]] = {
    CHOOSING: {
        "binary-1": lambda draw: latent_classes(draw, 8_000, [2] * 16, 6, 0.8),
        "binary-2": lambda draw: bayesian_network(draw, 40_000, [2] * 23, 3, 0.7, 3.5),
        "binary-3": lambda draw: gaussian_factors(draw, 1_500, [2] * 20, 3, 0.6),
        "wide-1": lambda draw: bayesian_network(draw, 15_000, _sizes(draw, 20, 2, 10), 2, 0.8),
        "wide-2": lambda draw: latent_classes(draw, 50_000, _sizes(draw, 26, 2, 8), 12, 0.8),
        "wide-3": lambda draw: gaussian_factors(draw, 5_000, _sizes(draw, 30, 2, 7), 4, 0.5),
        "spiky-1": lambda draw: household_budget(draw, 30_000, [80, 60, 50, 40], [3, 6, 10]),
        "spiky-2": lambda draw: household_budget(draw, 150_000, [40, 40, 30, 30, 20], [2, 3, 5, 8, 12]),
        "spiky-3": lambda draw: household_budget(draw, 2_000, [60, 40, 30], [2, 4, 9]),
        "functional-1": lambda draw: noisy_functions(draw, 4_000, _sizes(draw, 10, 3, 20), 3, 0.03),
        "functional-2": lambda draw: noisy_functions(draw, 20_000, _sizes(draw, 16, 2, 12), 4, 0.05),
        "functional-3": lambda draw: noisy_functions(draw, 8_000, _sizes(draw, 22, 2, 8), 5, 0.02),
        "codes-1": lambda draw: nested_codes(draw, 30_000, [5, 25, 80], 6, 0.02),
        "codes-2": lambda draw: nested_codes(draw, 12_000, [3, 9, 27, 60], 7, 0.01),
        "codes-3": lambda draw: nested_codes(draw, 9_000, [4, 16, 40], 9, 0.02),
    },
    JUDGING: {
        "panel": lambda draw: panel(draw, 12_000, 4, 4),
        "signs": lambda draw: noisy_or(draw, 100_000, 23, 9),
        "filters": lambda draw: skip_logic(draw, 3_000, [2] * 18),
        "questionnaire": lambda draw: skip_logic(draw, 20_000, _sizes(draw, 22, 2, 9)),
        "templates": lambda draw: altered_templates(draw, 40_000, _sizes(draw, 24, 2, 10), 300, 0.2),
        "events": lambda draw: counted_events(draw, 6_000, _sizes(draw, 30, 2, 7), 5),
        "trips": lambda draw: trips(draw, 120_000, 50, 30),
        "payroll": lambda draw: payroll(draw, 25_000, 60, 15, 40),
        "claims": lambda draw: claims(draw, 60_000, 80),
        "nested": lambda draw: nested_codes(draw, 10_000, [3, 8, 20, 50], 7, 0.01),
        "rules": lambda draw: decision_lists(draw, 30_000, _sizes(draw, 22, 2, 8), 6, 0.03),
        "checksums": lambda draw: checksums(draw, 5_000, _sizes(draw, 14, 3, 9), 6, 0.05),
    },
    FRESH: {
        "magnets": lambda draw: magnets(draw, 9_000, 14, 0.35),
        "tails": lambda draw: heavy_tails(draw, 40_000, [6, 16, 9, 24, 12, 8, 5, 10], 2.0),
        "diagnoses": lambda draw: diagnoses(draw, 15_000, [25, 2, 12, 6, 30, 4, 9, 3], 12.0),
        "quarters": lambda draw: quarters(draw, 70_000, 40, [2, 5, 8, 3, 12, 6]),
        "chains": lambda draw: chains(draw, 2_500, 7, 8),
        "rankings": lambda draw: rankings(draw, 20_000, 8, 4),
        "walks": lambda draw: walks(draw, 5_000, [4, 6, 8, 10, 12, 14, 16, 3]),
        "profiles": lambda draw: spread_profiles(draw, 120_000, [9, 3, 14, 5, 11, 7, 20, 2, 4], 60),
    },
}
