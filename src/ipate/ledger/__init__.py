"""Accounts by id: budgets, charges and releases, in memory and in an SQLite file."""
