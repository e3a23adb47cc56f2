"""PRIVATE: how the values of a column become the codes of its attribute."""
