"""Train teachers on disjoint people and let them vote on public points."""
