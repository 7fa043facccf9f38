"""Consent levels, policies, privacy budgets per person, and groups of people who share a budget."""
