"""The report of a run: what was promised to whom, what it cost, and how to check it.

A public report is written from public facts and released figures alone; a private one is for the data owner.
"""

from ipate.report.facts import Audience
from ipate.report.write import Report, write_report

__all__ = ["Audience", "Report", "write_report"]
