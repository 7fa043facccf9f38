"""The version of ipate, for the package and for what a run notes about itself."""

__version__ = "0.1.0"
