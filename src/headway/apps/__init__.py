"""Thin faces over the library: parsing, one call, showing."""
