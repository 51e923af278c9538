"""Pure rules: documents, DAG, admission, placement, leases, retry, lifecycle.

Imports the standard library and pydantic, nothing else. Its functions take ``now``, ids and a
snapshot, and return decisions with reasons.
"""
