"""Who allows what: consent levels, policies, budgets per person, groups of people."""
