"""Attacks on one's own run, in a copy with made-up people: the largest lower bound on ε that they reach."""
