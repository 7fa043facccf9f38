"""Every exception that ipate raises on purpose, in one tree."""

__all__ = ["BudgetExceededError", "InputError", "IpateError"]


class IpateError(Exception):
    """The root: whatever ipate raises on purpose is one of these."""


class InputError(IpateError, ValueError):
    """A value that cannot be used: the message names it and says what is allowed."""


class BudgetExceededError(IpateError):
    """A charge that an account cannot pay: nothing was charged and nothing released."""
