"""Headbay workflows."""
