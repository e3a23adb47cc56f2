"""The paper's experiments, and ours: NOT PRIVATE, because they compare with the true counts. For public data only."""
