"""Read, write and verify transformer circuits."""

from headway.version import VERSION

__version__ = VERSION
