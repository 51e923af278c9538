"""Headbay workers."""
