"""Privacy ledgers in memory and in SQLite files: accounts by id, with budgets, charges and releases."""
