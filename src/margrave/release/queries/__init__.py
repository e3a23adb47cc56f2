"""Questions to a release: conditions in words, counts by group, shares."""
