"""What may be said of a run, to whom: the report, the statement, their JSON."""
