"""Helpers that several test files share. `tests` is on the path, so `from support.repository import ROOT` works."""
