"""Read, write and verify transformer circuits."""

__version__ = "0.1.0"
