"""The commands, one module for each group that `headbay --help` shows."""
