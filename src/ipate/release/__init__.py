"""What releases have in common: the noise, the results of groups, and the guarantee."""
