"""Settings, plans and ptr designs, all chosen from public information before any vote is cast."""
