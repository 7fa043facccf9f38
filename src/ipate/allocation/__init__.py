"""Allocation: the layout that a variant decides, and who sits with which teacher."""
