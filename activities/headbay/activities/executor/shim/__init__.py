"""The shim: supervisor of one payload. Standard library only, few imports: each start pays them.

Blocked until it is told to go; writes `begin` durably before exec and `exit` durably before it
leaves; enforces the lease, the timeout and stop orders by itself, with nobody else alive. Worker
and launcher may die at any time: it is a session of its own.

It runs as ``python -I -S …/shim DIRECTORY FD`` and imports its parts by relative names, so that
they are compiled once and cached: compiling them anew would be half of its start.
"""
