"""The command line: one module per command, with shared options and output."""
