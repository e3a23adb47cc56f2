"""The mathematics of marginals and residuals: pure, deterministic, knowing neither data nor privacy."""
