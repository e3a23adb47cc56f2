"""PRIVATE: the rows of the table and their exact counts. Nothing here may be shown, logged, saved or returned."""
