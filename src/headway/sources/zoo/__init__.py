"""The small models that ship with the package: `zoo:zero-layer`, `zoo:one-layer`, `zoo:two-layer`."""

from headway.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "ZOO": "headway.sources.zoo.packaged",
        "zoo_path": "headway.sources.zoo.packaged",
    },
)
