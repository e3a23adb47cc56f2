"""How much noise each residual gets: decided from the workload and the budget alone, before any data is seen."""

from margrave.planning.expectation import OrderSummary, Summary
from margrave.planning.plans import Plan, budget_for_margin, least_budget, plan, plan_for_targets

__all__ = ["OrderSummary", "Plan", "Summary", "budget_for_margin", "least_budget", "plan", "plan_for_targets"]
