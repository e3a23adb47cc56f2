"""Made-up rows whose tables are the tables of a release: post-processing, which costs no budget."""
