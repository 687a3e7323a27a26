"""Where weights come from: written by hand, trained here, or shipped. Every door returns `Weights`."""

from headway.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "handmade": "headway.sources.handmade",
        "inspect": "headway.sources.open",
        "load": "headway.sources.open",
        "trained": "headway.sources.trained",
        "zoo": "headway.sources.zoo",
    },
)
