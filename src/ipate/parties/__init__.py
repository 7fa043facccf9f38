"""Parties that may not share data: every site trains its own teachers, and an aggregator merges their votes.

The aggregator sees raw votes, so it must be trusted; what it publishes goes through `ipate label`.
"""

from ipate.parties.asked import Asked
from ipate.parties.encoding import Encoding
from ipate.parties.manifest import Manifest, SiteVotes, read_site_votes
from ipate.parties.merge import Merged, merge
from ipate.parties.queries import Queries, make_queries, read_queries
from ipate.parties.site import Site, fit_site

__all__ = [
    "Asked",
    "Encoding",
    "Manifest",
    "Merged",
    "Queries",
    "Site",
    "SiteVotes",
    "fit_site",
    "make_queries",
    "merge",
    "read_queries",
    "read_site_votes",
]
