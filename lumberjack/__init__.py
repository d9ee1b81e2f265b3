"""Differentially private random forests in the manner of scikit-learn."""

from lumberjack.domain import Domain, PrivacyLeakWarning
from lumberjack.forest import LumberjackClassifier, LumberjackRegressor
from lumberjack.hierarchy import HierarchicalHeavyHitters
from lumberjack.ledger import PrivacyBudgetError, PrivacyLedger, make_private_scorer
from lumberjack.privacy import PrivacyReport

__version__ = "0.1.0"

__all__ = [
    "Domain",
    "HierarchicalHeavyHitters",
    "LumberjackClassifier",
    "LumberjackRegressor",
    "PrivacyBudgetError",
    "PrivacyLeakWarning",
    "PrivacyLedger",
    "PrivacyReport",
    "make_private_scorer",
]
