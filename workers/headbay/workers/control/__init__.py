"""The control worker: hosts the workflows and what they say to each other and to the ledger."""
