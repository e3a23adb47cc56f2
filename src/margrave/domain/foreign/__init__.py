"""Files by which other tools describe the columns of a table, read as declarations of attributes."""
