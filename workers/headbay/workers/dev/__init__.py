"""The embedded cluster: a Temporal server, a control worker and nodes on one machine."""
