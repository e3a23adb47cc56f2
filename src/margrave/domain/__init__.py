"""Domains: the attributes of a table, the values each may take, and the files that declare them."""

from margrave.domain.attribute import Attribute
from margrave.domain.domain import Domain
from margrave.domain.values import Label

__all__ = ["Attribute", "Domain", "Label"]
