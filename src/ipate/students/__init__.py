"""Students: models that learn from the pool and from released labels, and their deployment."""
