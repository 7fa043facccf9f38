"""Teachers: many models, each on its own people's data, and their votes on public points."""

from ipate.teachers.ensemble import TeacherError, train_and_vote
from ipate.teachers.store import VoteStore

__all__ = ["TeacherError", "VoteStore", "train_and_vote"]
