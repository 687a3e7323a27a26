"""The version, in a leaf module so that results can record it without importing the package root."""

VERSION = "0.1.0"
