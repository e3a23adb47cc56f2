"""PRIVATE: exact counts, made in this process or by the engine that holds the rows."""
