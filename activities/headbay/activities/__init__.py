"""Headbay activities."""
