"""Graded propose-test-release: one private yes or no in front of an unchanged Confident-GNMax.

The whole release, the bit and what follows a yes, is (ε, δ)-DP for every person, whatever the votes are; agreement
of the teachers makes it cheap without the cost being shown. `setting` is what is public, `kappa` and `envelope` bound
a query's cost around a histogram, `design` holds the tables and verifies them, `search` makes them from a public
reference, `level` is the private statistic.
"""

from ipate.accounting.ptr.design import Design, GroupTable, hash_queries
from ipate.accounting.ptr.envelope import query_costs, total_costs
from ipate.accounting.ptr.level import level, pass_probability
from ipate.accounting.ptr.search import Profile, default_radii, make_design, most_queries, profile_of
from ipate.accounting.ptr.setting import ORDERS, PtrGroup, Setting

__all__ = [
    "ORDERS",
    "Design",
    "GroupTable",
    "Profile",
    "PtrGroup",
    "Setting",
    "default_radii",
    "hash_queries",
    "level",
    "make_design",
    "most_queries",
    "pass_probability",
    "profile_of",
    "query_costs",
    "total_costs",
]
