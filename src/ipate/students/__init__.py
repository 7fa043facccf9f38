"""The student: a public model that learns from the noisy labels and never sees private data."""

from ipate.students.supervised import fit_student

__all__ = ["fit_student"]
