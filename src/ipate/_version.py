"""The version of ipate, for the package and for what a run notes about itself."""

__all__ = ["__version__"]

__version__ = "0.1.0"
