"""The node worker: runs what its pool granted, and never loses track of a process."""
