"""Individualized PATE: every person decides how well their own data is protected."""

__version__ = "0.1.0"
