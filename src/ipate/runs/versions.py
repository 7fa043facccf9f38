"""Which programs made a run: noted when it begins, because a report may be written years later."""

import platform
from importlib.metadata import PackageNotFoundError, version

from ipate._version import __version__
from ipate.config import RunConfig
from ipate.runs.models import NETS

__all__ = ["library_versions", "versions"]

_LIBRARIES = ("numpy", "scipy", "scikit-learn", "dp-accounting", "randomgen")


def library_versions(*more: str) -> dict[str, str]:
    """Return the versions of ipate, Python and the libraries that it computes with, and of further packages."""
    found = {"ipate": __version__, "Python": platform.python_version()}
    for name in (*_LIBRARIES, *more):
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # a module of the user's own, or one whose package has another name
            continue
    return found


def versions(config: RunConfig) -> dict[str, str]:
    """Return the versions that a run of this configuration depends on; torch where its models need it."""
    models = (config.teachers.model, config.student.model)
    own = [name.partition(":")[0].partition(".")[0] for name in models if ":" in name]
    nets = ["torch"] if any(name in NETS for name in models) else []
    return library_versions(*nets, *(name for name in dict.fromkeys(own) if name not in ("sklearn", "ipate")))
