"""Label queries: check what a query can cost, charge it, then release the answer."""
