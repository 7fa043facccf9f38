"""Which proofs carry the claims of a report.

The documentation has no address of its own yet, and a relative link would break in a page that is handed on alone. So
the pages are named by their path, with the version of ipate whose documentation holds them.
"""

from ipate.report.facts import Facts

FOLDER = "docs/proofs"
FILTER, BALLOTS, PTR = (f"{FOLDER}/{name}.md" for name in ("filter", "ballots", "ptr"))


def proofs(facts: Facts) -> tuple[str, ...]:
    """Return the pages that prove what was promised; empty where nothing was."""
    if not facts.publishable:
        return ()
    if (design := facts.parameters.design) is not None:
        return (PTR, FILTER) if design.fallback else (PTR,)
    return (BALLOTS, FILTER) if facts.parameters.ballots else (FILTER,)


def where_proven(facts: Facts) -> str:
    """Return the sentence that names the proofs; empty where nothing was promised."""
    pages = " and ".join(proofs(facts))
    if not pages:
        return ""
    version = facts.versions.get("ipate", "")
    return (
        f"Why this holds: {pages} in the documentation of ipate {version}".rstrip()
        + ", which is part of its source distribution. The proofs name every assumption, the tests that attack each "
        "step, and what is checked by machine only."
    )
