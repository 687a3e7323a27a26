"""The meeting point: one config, one set of weights, one forward pass for every model in the project."""

from headway.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "Carried": "headway.model.carried",
        "Freeze": "headway.model.recording",
        "Head": "headway.model.head",
        "ModelConfig": "headway.model.config",
        "Recording": "headway.model.recording",
        "Weights": "headway.model.weights",
        "logits": "headway.model.forward",
        "run": "headway.model.forward",
        "save": "headway.model.archive",
        "same_head": "headway.model.head",
    },
)
