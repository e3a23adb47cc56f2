"""PRIVATE: whose row it is, and which rows of a person are kept."""
