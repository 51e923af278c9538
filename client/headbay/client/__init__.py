"""Headbay client."""
