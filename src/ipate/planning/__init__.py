"""Decisions before any vote, from public facts alone: settings, plans, ptr designs."""
