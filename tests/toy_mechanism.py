"""A mechanism of a few lines, for tests: measures the first table of the workload with the whole budget."""

from dataclasses import dataclass
from fractions import Fraction

from margrave.algebra.layout import Layout
from margrave.boundary import measure_marginal
from margrave.data.source import open_source
from margrave.errors import PlanError
from margrave.measurements import Measurements
from margrave.mechanisms import Mechanism, Run, checked_request
from margrave.mechanisms.gaussian_marginals import marginal_cost
from margrave.mechanisms.spending import checked_sampler, spending
from margrave.options import option


@dataclass(frozen=True, kw_only=True)
class Toy(Mechanism):
    name = "toy"
    title = "toy mechanism"
    summary = "the first table alone"

    pieces: int = option(2, "Into how many pieces the budget is cut.")

    def description(self):
        return f"Only the first table was measured, in {self.pieces} pieces."

    def measure(self, source, workload, budget, *, contributions, run=Run()):  # noqa: B008
        checked_request(workload, budget)
        if self.pieces < 1:
            raise PlanError(f"pieces is {self.pieces}; give at least 1")
        counted = open_source(source, workload.domain, contributions=contributions, privacy_id=run.privacy_id)
        variance = Fraction(contributions**2 * self.pieces) / (2 * budget.rho)
        drawing = checked_sampler(run.sampler, [variance])
        layout = Layout.of(workload.domain.shape, workload.positions)
        place = layout.places[workload.positions[0]]
        with spending(counted, workload, layout, budget, purpose="toy", run=run) as spent:
            exact = spent.counts[layout.index.offset[place] : layout.index.offset[place + 1]]
            exact = exact.reshape(layout.shape(place))
            noisy = [
                (workload.sets[0], measure_marginal(exact, variance, drawing), float(variance))
                for _ in range(self.pieces)
            ]
            steps = [("table", marginal_cost(variance, contributions))] * self.pieces
            record = spent.record(self, steps, contributions, drawing)
            return spent.end(Measurements.from_marginals(workload.domain, noisy).with_provenance(record))
