"""PRIVATE: exact counts, from rows that are read here or by the engine that holds them."""
