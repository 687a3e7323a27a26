"""What heads did: attention patterns, repeated random tokens, loss by position, from recordings or plain arrays."""

from headway.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "Averages": "headway.behaviour.averages",
        "Observed": "headway.behaviour.observed",
        "in_context_score": "headway.behaviour.icl",
        "induction_gain": "headway.behaviour.repeated",
        "loss_by_position": "headway.behaviour.icl",
        "olsson_copying_scores": "headway.behaviour.olsson",
        "pattern_scores": "headway.behaviour.patterns",
        "prefix_matching": "headway.behaviour.repeated",
        "prefix_matching_scores": "headway.behaviour.repeated",
        "record_windows": "headway.behaviour.windows",
        "repeated_tokens": "headway.behaviour.repeated",
        "text_windows": "headway.behaviour.windows",
        "token_pool": "headway.behaviour.repeated",
        "window_losses": "headway.behaviour.windows",
    },
)
