"""The brute force of the tests: every plan of a tiny snapshot, priced as docs/problem.md says.

Slow and plain on purpose. It shares no code with the solver, only the schema.
"""

from oracle.enumerate import (
    TooLarge,
    conditional_optimum,
    feasible_plans,
    is_work_conserving,
    lexicographic_optimum,
    outcomes,
)
from oracle.ground import Placed
from oracle.values import Pricing, stage_names, stage_values

__all__ = [
    "Placed",
    "Pricing",
    "TooLarge",
    "conditional_optimum",
    "feasible_plans",
    "is_work_conserving",
    "lexicographic_optimum",
    "outcomes",
    "stage_names",
    "stage_values",
]
