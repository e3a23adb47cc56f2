"""How much noise each residual gets: decided from the workload and the budget alone, before any data is seen."""

from margrave.planning.plans import Plan, budget_for_margin, plan
from margrave.planning.summary import OrderSummary, Summary

__all__ = ["OrderSummary", "Plan", "Summary", "budget_for_margin", "plan"]
