"""The values an attribute may take: one module for each kind, and the registry of kinds."""

from margrave.domain.values.bins import Bins
from margrave.domain.values.codes import Codes
from margrave.domain.values.kind import Label, Values
from margrave.domain.values.labels import Labels

__all__ = ["Bins", "Codes", "Label", "Labels", "Values"]
