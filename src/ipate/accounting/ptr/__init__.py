"""Graded propose-test-release: one private test in front of a whole release."""
