"""Teachers: models trained on disjoint people vote on public points, and noise is added to their votes."""
