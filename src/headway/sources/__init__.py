"""Where weights come from: written by hand, trained here, or shipped. Every door returns `Weights`."""

from headway.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "inspect": "headway.sources.open",
        "load": "headway.sources.open",
    },
)
