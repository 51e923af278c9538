"""Tests on real Linux nodes."""
