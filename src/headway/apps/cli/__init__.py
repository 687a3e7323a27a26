"""The `headway` command: one file a command, imported when it is used, so that `--help` costs nothing."""

from headway.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, {"main": "headway.apps.cli.app"})
