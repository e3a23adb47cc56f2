"""Where a table is stored and how its rows are read: frames, files, databases and clusters."""
