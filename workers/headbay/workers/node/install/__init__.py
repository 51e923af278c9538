"""`headbay node install`: the node worker as a service of this machine."""
