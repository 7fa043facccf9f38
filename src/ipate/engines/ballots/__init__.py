"""Ballots: every person casts one weighted vote into public cells, and the whole histogram is released once."""
