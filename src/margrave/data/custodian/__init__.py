"""PRIVATE: what the custodian of a table may see of it: a draft of its domain, and how it fits a domain."""
