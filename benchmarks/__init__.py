"""How fast Headbay is, always as a ratio to what Temporal alone does in the same minute."""
