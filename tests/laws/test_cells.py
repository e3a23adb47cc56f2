"""The loops over tables behind weights "auto", each against a slow and obvious twin."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from margrave.algebra.layout import Layout
from margrave.reconstruction.prior import cells, departures
from margrave.reconstruction.prior.departures import CAPS, GRID, HIGH, LOW, MEANS, SHAPE, starting_prior
from margrave.reconstruction.prior.fitting import TOLERANCE, fit_proportionally

# Tables of one, two and three attributes, one of them with a single value.
LAYOUT = Layout.of((3, 4, 1, 2), [(0, 1, 3), (1, 2)])
TABLES = len(LAYOUT.sets)


def tables_of(layout, seed, *, empty=0.2):
    """Tables of a closure that agree, with some cells empty, and measured residuals near to theirs."""
    draw = np.random.default_rng(seed)
    whole = draw.gamma(0.7, 30, layout.sizes)
    whole[draw.random(layout.sizes) < empty] = 0.0
    axes = set(range(len(layout.sizes)))
    tables = np.concatenate([whole.sum(axis=tuple(axes - set(members))).ravel() for members in layout.sets])
    return tables, draw.normal(0, 20, layout.cells)


def centred(table):
    for axis in range(table.ndim):
        table = table - table.mean(axis=axis, keepdims=True)
    return table


def sampled(q):
    """v of (3) of departures and the least sum that each cell is part of, which is not asked of single attributes."""
    v, most = q.copy(), np.full(q.shape, np.inf)
    for axis in range(q.ndim):
        sums = np.broadcast_to(q.sum(axis=axis, keepdims=True), q.shape)
        known = sums > 0
        v[known] *= 1 - q[known] / sums[known]
        if q.ndim > 1:
            most[known] = np.minimum(most[known], sums[known])
    return v, most


def kind_of(q, most):
    return sum(most > cap * q for cap in CAPS[:-1])


def observed_cells(layout, tables, measured, variances):
    """For each cell of a measured table that is not empty: table, cell, q, d, S, v, share, class."""
    for t, members in enumerate(layout.sets):
        q = layout.view(tables, t)
        if not members or not 0 < variances[t] < math.inf or layout.degrees[t] == 0:
            continue
        share = layout.degrees[t] / q.size
        v, most = sampled(q)
        d = layout.view(measured, t) - centred(q)
        for cell in np.ndindex(q.shape):
            if q[cell] > 0:
                deviation = math.sqrt(variances[t] * share + v[cell])
                yield t, cell, q[cell], d[cell], deviation, v[cell], share, kind_of(q[cell], most[cell])


def weight(u, share):
    return math.floor(share * min(1.0, 1024 * u) * 2**20) / 2**20


def place_of(d, q, deviation):
    """The nearest place of the grid."""
    row = (math.asinh(d / deviation) + departures.REACH) / departures.STEP
    column = (math.log2(q / deviation) - departures.LOWEST) / departures.OCTAVE
    return tuple(int(min(max(place, 0), size - 1.001) + 0.5) for place, size in zip((row, column), GRID, strict=True))


@pytest.mark.parametrize("seed", range(3))
def test_samples_vary_as_stated_also_where_sums_are_zero(seed):
    tables, _ = tables_of(LAYOUT, seed, empty=0.6)
    for t, members in enumerate(LAYOUT.sets):
        if members:
            q = LAYOUT.view(tables, t)
            v, most = np.empty(q.size), np.empty(q.size)
            cells.sample_variances(q.ravel(), np.array(q.shape), q.ndim, v, most)
            expected = sampled(q)
            np.testing.assert_allclose(v, expected[0].ravel(), rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(most, expected[1].ravel(), rtol=1e-12)


def test_a_cell_counts_less_the_further_it_is_below_the_noise_in_multiples_of_a_power_of_two():
    for u in (1e-9, 1e-5, 0.5 / 1024, 1 / 1024, 1.0, 50.0):
        for share in (0.1, 1 / 3, 1.0):
            assert cells.weight_of(u, share) == weight(u, share)
    assert cells.weight_of(7.0, 1 / 3) == math.floor(2**20 / 3) / 2**20


@pytest.mark.parametrize("q", [0.3, 5.0])
def test_the_class_of_a_cell_is_the_number_of_caps_that_its_sum_leaves_it(q):
    for most in (0.3, 0.6, 1.2, 10.0, 40.0, 160.0, 640.0, 2560.0, 1e9, math.inf):
        assert cells.class_of(q, most) == kind_of(q, most)


def test_places_on_the_grid_are_where_they_stand_for_and_end_with_it():
    for row in (0.0, 3.25, 150.0, 299.5):
        departure = 7 * math.sinh(row * departures.STEP - departures.REACH)
        assert cells.grid_row(departure, 7.0) == pytest.approx(row, abs=1e-8)
    for column in (0.0, 10.5, 82.0):
        predicted = 7 * 2.0 ** (departures.LOWEST + column * departures.OCTAVE)
        assert cells.grid_column(predicted, 7.0) == pytest.approx(column, abs=1e-9)
    for sign, row in ((-1, 0), (1, GRID[0] - 1)):
        found = cells.grid_row(sign * 1e300, 1.0)
        # The last mesh begins at the last place but one, and is looked up in full.
        assert (int(found + 0.5), int(found) + 1 < GRID[0]) == (row, True)
    for predicted, column in ((1e-300, 0), (1e300, GRID[1] - 1)):
        found = cells.grid_column(predicted, 1.0)
        assert (int(found + 0.5), int(found) + 1 < GRID[1]) == (column, True)


def likelihood_of(component, x, u):
    """The density of a departure x under one component, by numerical integration; noise of variance one."""
    low, high = (LOW[component] - 1) * u, (HIGH[component] - 1) * u
    if low == high:
        return norm.pdf(x - low)
    nearest = min(max(x, low), high)
    parts = [(max(low, nearest - 9), nearest), (nearest, min(high, nearest + 9))]
    return sum(quad(lambda e: norm.pdf(x - e), *part, epsabs=0, epsrel=1e-10)[0] for part in parts) / (high - low)


def test_the_likelihood_of_a_cell_is_that_of_every_component():
    q = np.array([4.0, 4.0, 4.0, 0.01, 300.0, 0.0])
    d = np.array([-3.0, 0.2, 25.0, 1.0, -20.0, 5.0])
    v, most = np.array([2.0, 0.5, 1.0, 0.0, 30.0, 0.0]), np.array([9.0, 40.0, 1e4, 1e9, 700.0, 1.0])
    noise, share = 3.0, 0.75
    rows, counts, kinds = np.empty((6, MEANS.size)), np.empty(6), np.empty(6, dtype=np.int64)
    cells.cell_likelihoods(q, d, v, most, noise, share, rows, counts, kinds)
    for i in range(5):
        deviation = math.sqrt(noise + v[i])
        assert counts[i] == weight(q[i] / deviation, share)
        assert kinds[i] == kind_of(q[i], most[i])
        for g in range(MEANS.size):
            # An interval of less than a thousandth of the noise is taken as its middle.
            expected = likelihood_of(g, d[i] / deviation, q[i] / deviation)
            assert rows[i, g] == pytest.approx(expected, rel=1e-5, abs=1e-16), (i, g)
    assert (counts[5], kinds[5]) == (0.0, 0)
    np.testing.assert_array_equal(rows[5], 1.0)


@pytest.mark.parametrize("seed", range(3))
def test_departures_of_tables_are_counted_where_they_lie_and_only_if_they_were_measured(seed):
    tables, measured = tables_of(LAYOUT, seed)
    variances = np.random.default_rng(seed).choice(
        [0.0, 0.5, 50.0, 3000.0, math.inf], TABLES, p=[0.1, 0.3, 0.3, 0.2, 0.1]
    )
    given, seen, found = np.ones(TABLES, dtype=np.int64), np.zeros(SHAPE), tables.copy()
    none = np.zeros(1)
    cells.predict_tables(1, TABLES, LAYOUT.index, LAYOUT.degrees, none, variances, measured, given, found, seen)
    np.testing.assert_array_equal(found, tables)
    expected = np.zeros(SHAPE)
    for _, _, q, d, deviation, _, share, kind in observed_cells(LAYOUT, tables, measured, variances):
        expected[(kind, *place_of(d, q, deviation))] += weight(q / deviation, share)
    np.testing.assert_array_equal(seen, expected)
    assert seen.any()


def test_a_table_that_is_not_given_is_predicted_by_its_facets():
    """Of two attributes independence; of three the most even table, after some cycles."""
    layout = Layout.of((3, 4, 2), [(0, 1, 2)])
    tables, measured = tables_of(layout, 5, empty=0.0)
    found, seen = np.full(layout.cells, -1.0), np.zeros(SHAPE)
    variances, given = np.zeros(len(layout.sets)), np.zeros(len(layout.sets), dtype=np.int64)
    cells.predict_tables(
        1, len(layout.sets), layout.index, layout.degrees, tables, variances, measured, given, found, seen
    )
    for t, members in enumerate(layout.sets):
        q = layout.view(found, t)
        if len(members) == 1:
            np.testing.assert_allclose(q, tables[0] / q.size)
        if len(members) == 2:
            single = [layout.view(tables, layout.places[(k,)]) for k in members]
            np.testing.assert_allclose(q, np.multiply.outer(*single) / tables[0], rtol=1e-12)
        if len(members) == 3:
            for axis in range(3):
                facet = layout.view(tables, layout.places[tuple(k for k in members if k != axis)])
                assert np.abs(q.sum(axis=axis) - facet).sum() < 1e-3 * tables[0]
    assert not seen.any()


@pytest.mark.parametrize("seed", range(3))
def test_the_evidence_of_a_table_is_that_of_its_cells(seed):
    tables, measured = tables_of(LAYOUT, seed)
    draw = np.random.default_rng(seed + 9)
    variances = draw.choice([0.0, 0.5, 50.0, math.inf], TABLES, p=[0.1, 0.4, 0.4, 0.1])
    likelier, evidence = draw.normal(size=SHAPE), np.full(TABLES, 7.0)
    cells.weigh_tables(1, TABLES, LAYOUT.index, LAYOUT.degrees, variances, measured, tables, likelier, evidence)
    expected = np.zeros(TABLES)
    for t, _, q, d, deviation, _, share, kind in observed_cells(LAYOUT, tables, measured, variances):
        expected[t] += weight(q / deviation, share) * likelier[(kind, *place_of(d, q, deviation))]
    np.testing.assert_allclose(evidence[1:], expected[1:], rtol=1e-12, atol=1e-12)
    assert evidence[0] == 7.0


@pytest.mark.parametrize("seed", range(2))
def test_likelihoods_of_single_attributes_are_those_of_their_cells(seed):
    tables, measured = tables_of(LAYOUT, 3 + seed)
    variances, singles = np.full(TABLES, 40.0), [t for t, members in enumerate(LAYOUT.sets) if len(members) == 1]
    # The third attribute has one value, and no degree of freedom.
    variances[singles] = [0.5, math.inf, 40.0, 0.0] if seed else [math.inf, 40.0, 0.5, 0.5]
    first, last = singles[0], singles[-1] + 1
    start, end = LAYOUT.index.offset[first], LAYOUT.index.offset[last]
    rows, counts, kinds = (
        np.ones((end - start, MEANS.size)),
        np.zeros(end - start),
        np.zeros(end - start, dtype=np.int64),
    )
    cells.single_cells(
        first, last, LAYOUT.index, LAYOUT.degrees, variances, measured, tables, start, rows, counts, kinds
    )
    seen = np.zeros(end - start, dtype=bool)
    for t, cell, q, d, deviation, _, share, kind in observed_cells(LAYOUT, tables, measured, variances):
        if t in singles:
            i = LAYOUT.index.offset[t] - start + cell[0]
            seen[i] = True
            assert counts[i] == weight(q / deviation, share)
            assert kinds[i] == kind == len(CAPS) - 1
            for g in (0, 4, 12, MEANS.size - 1):
                assert rows[i, g] == pytest.approx(likelihood_of(g, d / deviation, q / deviation), rel=1e-5, abs=1e-16)
    assert 0 < seen.sum() < seen.size
    assert (rows[~seen] == 1).all()
    assert not counts[~seen].any()


def test_mutual_information_is_that_of_the_tables_and_zero_where_none_is_given():
    draw = np.random.default_rng(6)
    sizes = np.array([2, 3, 4])
    joint = draw.gamma(0.5, 9, (2, 4))
    joint[1, 2] = 0.0
    starts = np.full((3, 3), -1)
    starts[0, 2] = starts[2, 0] = 5
    tables = np.concatenate([np.full(5, 1e9), joint.ravel()])
    found = cells.mutual_information(np.array([[0, 2]]), sizes, starts, tables)
    p = joint / joint.sum()
    independent = np.multiply.outer(p.sum(axis=1), p.sum(axis=0))
    expected = np.zeros((3, 3))
    expected[0, 2] = expected[2, 0] = np.sum(np.where(p > 0, p * np.log(np.where(p > 0, p, 1) / independent), 0.0))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert not cells.mutual_information(np.array([[0, 2]]), sizes, starts, np.zeros(13)).any()


@pytest.mark.parametrize("room", [1, 3, 8])
def test_the_attributes_between_two_are_those_that_tell_most_about_both(room):
    draw = np.random.default_rng(room)
    dependence = draw.integers(0, 6, (9, 9)).astype(float)
    thirds, shares = np.full(room, -1), np.full(room, -1.0)
    found = cells.attributes_between(2, 5, dependence, thirds, shares)
    told = {c: min(dependence[2, c], dependence[5, c]) for c in range(9) if c not in (2, 5)}
    # Of those that tell as much, the first.
    expected = sorted((c for c in told if told[c] > 0), key=lambda c: (-told[c], c))[:room]
    assert thirds[:found].tolist() == expected
    assert shares[:found].tolist() == [told[c] for c in expected]


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0), (0, 2, 1)], ids=str)
def test_two_attributes_that_are_independent_given_a_third(order):
    """The tables of a, c and of c, b, whichever way they lie; a value of c that nobody has adds nobody."""
    a, c, b = order
    draw = np.random.default_rng(7)
    whole = draw.gamma(1, 9, (2, 3, 4))
    whole[tuple(1 if axis == c else slice(None) for axis in range(3))] = 0.0
    sizes, starts, buffer = np.array(whole.shape), np.full((3, 3), -1), []
    for pair in ((0, 1), (0, 2), (1, 2)):
        starts[pair] = starts[pair[::-1]] = sum(part.size for part in buffer)
        buffer.append(whole.sum(axis=3 - sum(pair)).ravel())
    joint = np.empty((sizes[a], sizes[b]))
    cells.independent_given(a, c, b, sizes, starts, np.concatenate(buffer), joint)
    turned = whole.transpose(a, c, b)
    expected = np.zeros_like(joint)
    for value in range(sizes[c]):
        part = turned[:, value]
        if part.sum() > 0:
            expected += np.multiply.outer(part.sum(axis=1), part.sum(axis=0)) / part.sum()
    np.testing.assert_allclose(joint, expected, rtol=1e-12)


def test_a_value_that_only_one_of_two_tables_has_adds_nobody():
    """Tables that have not settled disagree: the first has people of c = 0 and 1, the second of c = 1 alone."""
    tables = np.concatenate([[5.0, 3.0, 0.0, 2.0], [0.0, 0.0, 4.0, 1.0]])
    starts = np.array([[-1, 0, -1], [0, -1, 4], [-1, 4, -1]])
    joint = np.empty((2, 2))
    cells.independent_given(0, 1, 2, np.array([2, 2, 2]), starts, tables, joint)
    np.testing.assert_allclose(joint, np.multiply.outer([3.0, 2.0], [4.0, 1.0]) / 5.0, rtol=1e-12)


def test_cells_are_binned_at_the_nearest_places_and_bins_are_named_once():
    draw = np.random.default_rng(8)
    q = np.concatenate([np.full(6, 3.0), draw.gamma(1, 20, 10), [0.0, 1e-8]])
    d, v, most = draw.normal(0, 4, q.size), draw.gamma(1, 2, q.size), np.full(q.size, 60.0)
    d[:6], v[:6] = 1.0, 2.0
    noise, share = 5.0, 0.5
    seen, places = np.zeros(SHAPE), np.full(q.size, -1)
    kinds, down, right = np.zeros(q.size, dtype=np.int64), np.zeros(q.size), np.zeros(q.size)
    bins = cells.bin_table(q, d, v, most, noise, share, seen, places, kinds, down, right)
    expected = np.zeros(SHAPE)
    for i in np.flatnonzero(q > 0):
        deviation = math.sqrt(noise + v[i])
        place = place_of(d[i], q[i], deviation)
        expected[(kind_of(q[i], most[i]), *place)] += weight(q[i] / deviation, share)
        assert (down[i], right[i]) == (cells.grid_row(d[i], deviation), cells.grid_column(q[i], deviation))
        assert kinds[i] == kind_of(q[i], most[i])
    np.testing.assert_array_equal(seen, expected)
    assert sorted(places[:bins].tolist()) == np.flatnonzero(expected).tolist()
    # Learning from the bins is learning from their cells, and leaves the bins empty.
    prior, usual = starting_prior(2), starting_prior(2)
    cells.learn(seen, places[:bins], departures.grid().binned, usual, prior)
    assert not seen.any()
    kind, row, column = np.nonzero(expected)
    rows, twin = np.ascontiguousarray(departures.grid().binned[row, column]), usual.copy()
    departures.climb(
        rows, expected[kind, row, column], kind, MEANS, usual, departures.TABLE_CELLS, departures.TABLE_ROUNDS, twin
    )
    np.testing.assert_allclose(prior, twin, rtol=1e-9)


def test_between_places_the_grid_is_linear_along_both_sides():
    rows, columns = np.mgrid[0:4, 0:5]
    values = 1 + 2.0 * rows - 3.0 * columns + 0.5 * rows * columns
    for row, column in ((0, 0), (1, 2), (2, 3)):
        for down, right in ((0.0, 0.0), (0.25, 0.0), (0.0, 0.75), (0.3, 0.6)):
            r, c = row + down, column + right
            expected = 1 + 2 * r - 3 * c + 0.5 * r * c
            assert cells.between(values, row, column, down, right) == pytest.approx(expected, rel=1e-12)


def looked_up(prior, down, right):
    """Mean and variance at the four places of the grid around a cell."""
    places, moments = departures.grid(), np.full((2, *GRID), np.nan)
    for row in (int(down), int(down) + 1):
        for column in (int(right), int(right) + 1):
            moments[:, row, column] = cells.posterior(
                prior, row, places.likelihood[row, column], places.first[row, column], places.second[row, column]
            )
    return moments


@pytest.mark.parametrize("quiet", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("row", [100, 130, 145, 152, 165, 171, 195])
@pytest.mark.parametrize("column", [50, 55, 62])
def test_a_cell_is_estimated_by_the_posterior_mean_of_its_count(row, column, quiet):
    """(4) of departures, with e the mean over tables that are as predicted and tables that are not."""
    noise, v, spread = 4.0, 2.5, 0.8
    squared = noise + v
    deviation = math.sqrt(squared)
    # At places of the grid, where nothing is interpolated.
    q = deviation * 2.0 ** (departures.LOWEST + column * departures.OCTAVE)
    d = deviation * math.sinh(row * departures.STEP - departures.REACH)
    prior = starting_prior(2)
    down, right = cells.grid_row(d, deviation), cells.grid_column(q, deviation)
    found, error = cells.estimate_cell(q, d, v, noise, spread, quiet, down, right, looked_up(prior, down, right), prior)
    mean, variance = cells.posterior_of(prior, d / deviation, q / deviation)
    e, left = deviation * mean, min(squared * variance, q * q)
    left = (1 - quiet) * (left + quiet * e * e)
    e *= 1 - quiet
    # An interval of less than a thousandth of the noise is taken as its middle.
    assert found == pytest.approx(max(q + e + v / squared * (d - e), 0.0), rel=1e-5, abs=1e-5)
    assert error == pytest.approx((noise / squared) ** 2 * left + v / squared * noise, rel=1e-4)


def test_a_cell_far_below_the_noise_is_expected_to_vary_by_the_prior():
    """What is seen of it says nothing; its own variance is q² times that of λ, and the count moves with q."""
    q, noise, spread = 1e-9, 100.0, 0.6
    prior, deviation = starting_prior(2), math.sqrt(noise)
    down, right = cells.grid_row(3.0, deviation), cells.grid_column(q, deviation)
    found, error = cells.estimate_cell(
        q, 3.0, 0.0, noise, spread, 0.0, down, right, looked_up(prior, down, right), prior
    )
    assert error == pytest.approx(q * q * spread, rel=1e-9, abs=0.0)
    assert 0 <= found < 1e3 * q


def test_what_no_component_explains_is_taken_as_it_is():
    prior, nothing = starting_prior(2), np.zeros(MEANS.size)
    assert cells.posterior(prior, 40, nothing, nothing, nothing) == (math.sinh(4.0 - departures.REACH), 1.0)
    assert cells.posterior_of(prior, -1e6, 3.0) == (-1e6, 1.0)


@pytest.mark.parametrize("seed", range(3))
def test_tables_are_estimated_cell_by_cell_with_what_is_learned_from_all_of_a_table(seed):
    """The pieces above, put together by plain loops: bins, π of the table, the posterior of each cell, the residual."""
    tables, measured = tables_of(LAYOUT, seed)
    draw = np.random.default_rng(seed + 20)
    variances = draw.choice([0.0, 0.5, 50.0, math.inf], TABLES, p=[0.15, 0.35, 0.35, 0.15])
    quiet, usual, places = draw.random(TABLES), starting_prior(2), departures.grid()
    spreads = departures.unmeasured_spreads(usual)
    found, errors = tables.copy(), np.full(TABLES, -1.0)
    cells.estimate_tables(
        1, TABLES, LAYOUT.index, LAYOUT.degrees, variances, measured, usual, spreads, *places, quiet, found, errors
    )
    told = list(observed_cells(LAYOUT, tables, measured, variances))
    for t in range(1, TABLES):
        q, z = LAYOUT.view(tables, t), LAYOUT.view(measured, t)
        v, most = sampled(q)
        if LAYOUT.degrees[t] == 0:
            expected, error = np.zeros(q.shape), 0.0
        elif variances[t] == 0:
            expected, error = z, 0.0
        elif variances[t] == math.inf:
            kinds = np.array([kind_of(one, least) for one, least in zip(q.flat, most.flat, strict=True)]).reshape(
                q.shape
            )
            varied = (1 - quiet[t]) * q**2 * spreads[kinds] + v
            expected, error = centred(q), varied[q > 0].sum() / q.size
        else:
            own = [cell[1:] for cell in told if cell[0] == t]
            prior, priors = learned(own, usual, single=q.ndim == 1), np.empty((len(CAPS), usual.size))
            departures.class_priors(MEANS, prior, priors)
            noise, estimate, error = variances[t] * LAYOUT.degrees[t] / q.size, np.zeros(q.shape), 0.0
            for cell, predicted, d, deviation, sample, _, kind in own:
                place = cells.grid_row(d, deviation), cells.grid_column(predicted, deviation)
                estimate[cell], one = cells.estimate_cell(
                    *(predicted, d, sample, noise, spreads[kind], quiet[t], *place),
                    *(looked_up(priors[kind], *place), priors[kind]),
                )
                error += one / q.size
            expected = centred(estimate)
        np.testing.assert_allclose(LAYOUT.view(found, t), expected, rtol=1e-7, atol=1e-7)
        assert errors[t] == pytest.approx(error, rel=1e-7)


def learned(own, usual, *, single):
    """π of a table from its cells: from their bins, or of a single attribute from each cell."""
    rows, counts, kinds = [], [], []
    for _, q, d, deviation, _, share, kind in own:
        at = departures.grid().binned[place_of(d, q, deviation)]
        rows.append([likelihood_of(g, d / deviation, q / deviation) for g in range(usual.size)] if single else at)
        counts.append(weight(q / deviation, share))
        kinds.append(kind)
    prior = usual.copy()
    known = np.array(rows), np.array(counts), np.array(kinds)
    departures.climb(*known, MEANS, usual, departures.TABLE_CELLS, departures.TABLE_ROUNDS, prior)
    return prior


@pytest.mark.parametrize("seed", range(3))
def test_pairs_are_predicted_through_the_attributes_that_both_depend_on(seed):
    """(4) of levels by plain loops; pairs that are held, or that nothing connects, are left as they are."""
    sizes = (3, 2, 4, 2, 3)
    layout = Layout.of(sizes, [(a, b) for a in range(5) for b in range(a)])
    tables, measured = tables_of(layout, seed, empty=0.05)
    draw = np.random.default_rng(seed + 40)
    dependence = np.triu(draw.random((5, 5)) * (draw.random((5, 5)) < 0.95), 1)
    dependence += dependence.T
    dependence[4] = dependence[:, 4] = 0.0
    places = np.array([t for t, members in enumerate(layout.sets) if len(members) == 2])
    pairs = np.array([layout.sets[t] for t in places])
    singles, starts = np.zeros(5, dtype=np.int64), np.full((5, 5), -1)
    for k in range(5):
        singles[k] = layout.index.offset[layout.places[(k,)]]
    for t, (a, b) in zip(places, pairs, strict=True):
        starts[a, b] = starts[b, a] = layout.index.offset[t]
    variances = draw.choice([0.0, 0.5, 400.0, math.inf], len(layout.sets), p=[0.2, 0.3, 0.3, 0.2])
    given, predicted = np.zeros(len(layout.sets), dtype=np.int64), np.full(layout.cells, -1.0)
    cells.predict_pairs(
        *(pairs, places, np.array(sizes), singles, starts, tables, dependence),
        *(layout.index.offset, variances, measured, given, predicted),
    )
    for t, (a, b) in zip(places, pairs, strict=True):
        found, z = layout.view(predicted, t), layout.view(measured, t)
        shares = {c: min(dependence[a, c], dependence[b, c]) for c in range(5) if c not in (a, b)}
        shares = {c: share for c, share in shares.items() if share > 0}
        if not shares or variances[t] == 0:
            assert given[t] == 0
            np.testing.assert_array_equal(found, -1.0)
            continue
        assert given[t] == 1
        through = {}
        for c in shares:
            rows, columns = (layout.view(tables, layout.places[tuple(sorted((k, c)))]) for k in (a, b))
            rows, columns = (one if k < c else one.T for one, k in ((rows, a), (columns, b)))
            middle = rows.sum(axis=0)
            through[c] = rows @ (columns / np.where(middle > 0, middle, 1)).T
        distances = {c: np.sum((centred(through[c]) - z) ** 2) for c in shares}
        spread = max(variances[t], min(distances.values()) / ((sizes[a] - 1) * (sizes[b] - 1)))
        near = {c: math.exp(-distances[c] / (2 * spread)) if spread < math.inf else 1.0 for c in shares}
        weights = {c: shares[c] ** 2 * near[c] for c in shares}
        expected = sum(weights[c] * through[c] for c in shares) / sum(weights.values())
        facets = [layout.view(tables, layout.places[(k,)]) for k in (b, a)]
        fit_proportionally(expected, facets, tolerance=TOLERANCE, most_rounds=5)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    assert 0 < given.sum() < len(places)


@pytest.mark.parametrize("row", [70.5, 110.3, 180.5, 203.7])
def test_far_from_what_was_predicted_nothing_is_interpolated(row):
    """Between two places of the grid lie many deviations there."""
    noise, v = 4.0, 2.5
    deviation = math.sqrt(noise + v)
    q, d = 3_000.0 * deviation, deviation * math.sinh(row * departures.STEP - departures.REACH)
    prior = starting_prior(2)
    down, right = cells.grid_row(d, deviation), cells.grid_column(q, deviation)
    found, _ = cells.estimate_cell(q, d, v, noise, 0.8, 0.0, down, right, looked_up(prior, down, right), prior)
    e = deviation * cells.posterior_of(prior, d / deviation, q / deviation)[0]
    assert found == pytest.approx(max(q + e + v / (noise + v) * (d - e), 0.0), rel=1e-12)


def test_where_only_one_component_is_possible_it_is_the_posterior():
    for component, mean in ((0, 0.0), (MEANS.size - 1, -7.0)):
        prior = np.zeros(MEANS.size)
        prior[component] = 1.0
        assert cells.posterior_of(prior, -2.0, 7.0) == (pytest.approx(mean, abs=1e-12), pytest.approx(0.0, abs=1e-12))
