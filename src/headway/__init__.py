"""Read, write and verify transformer circuits.

`hw.load("zoo:two-layer")` gives `Weights`, whatever they come from; `hw.circuits`, `hw.behaviour`, `hw.paths` and
`hw.studies` ask questions of them. Nothing is imported before it is used.
"""

from headway.lazy import attach
from headway.version import VERSION

__version__ = VERSION

_PACKAGES = (
    "algebra",
    "behaviour",
    "circuits",
    "errors",
    "exercises",
    "model",
    "paths",
    "sources",
    "studies",
    "tables",
    "tokens",
    "views",
)

__getattr__, __dir__, __all__ = attach(
    __name__,
    {name: f"headway.{name}" for name in _PACKAGES}
    | {
        "Head": "headway.model.head",
        "HeadId": "headway.ids",
        "ModelConfig": "headway.model.config",
        "PathId": "headway.ids",
        "Weights": "headway.model.weights",
        "inspect": "headway.sources.open",
        "load": "headway.sources.open",
        "logits": "headway.model.forward",
        "run": "headway.model.forward",
        "same_head": "headway.model.head",
    },
)
