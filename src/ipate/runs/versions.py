"""Which programs made a run: noted when it begins, because a report may be written years later."""

from ipate._version import library_versions
from ipate.config import RunConfig
from ipate.runs.models import NETS

__all__ = ["versions"]


def versions(config: RunConfig) -> dict[str, str]:
    """Return the versions that a run of this configuration depends on; torch where its models need it."""
    models = (config.teachers.model, config.student.model)
    own = [name.partition(":")[0].partition(".")[0] for name in models if ":" in name]
    nets = ["torch"] if any(name in NETS for name in models) else []
    return library_versions(*nets, *(name for name in dict.fromkeys(own) if name not in ("sklearn", "ipate")))
