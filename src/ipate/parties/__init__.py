"""Several sites: each trains its own teachers, and only votes are merged."""
