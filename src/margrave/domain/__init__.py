"""Domains: the attributes of a table, the values each may take, and the files that declare them."""

from margrave.domain.attribute import Attribute, Label
from margrave.domain.domain import Domain

__all__ = ["Attribute", "Domain", "Label"]
