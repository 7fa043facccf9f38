"""One hypothesis profile for all tests: no deadlines (machines differ), the same examples in CI every time."""

import os

from hypothesis import settings

settings.register_profile("ipate", deadline=None, print_blob=True)
settings.register_profile("ci", parent=settings.get_profile("ipate"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "ipate")
