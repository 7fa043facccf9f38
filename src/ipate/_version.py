"""The version of ipate, and of the libraries that it computes with: a run notes them when it begins."""

__version__ = "0.1.0"
_LIBRARIES = ("numpy", "scipy", "scikit-learn", "dp-accounting", "randomgen")


def library_versions(*more: str) -> dict[str, str]:
    """Return the versions of ipate, Python and the libraries that it computes with, and of further packages."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    found = {"ipate": __version__, "Python": platform.python_version()}
    for name in (*_LIBRARIES, *more):
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # a module of the user's own, or one whose package has another name
            continue
    return found
