"""Every exception that ipate raises on purpose, in one tree."""

__all__ = ["BudgetExceededError", "DataUnavailableError", "InputError", "IpateError"]


class IpateError(Exception):
    """The root: whatever ipate raises on purpose is one of these."""


class InputError(IpateError, ValueError):
    """A value that cannot be used: the message names it and says what is allowed."""


class BudgetExceededError(IpateError):
    """A charge that an account cannot pay: nothing was charged and nothing released."""


class DataUnavailableError(IpateError):
    """A data set's files are neither here nor to be had; the message names them, their source and their place."""
