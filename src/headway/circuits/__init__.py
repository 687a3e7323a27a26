"""What heads could do, from weights alone: composition, copying, and the direct path as a bigram table.

No text is run. Every score says which processing of the weights it was taken from and what chance would give.
"""

from __future__ import annotations

from headway.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "BigramTable": "headway.circuits.smoothing",
        "circuit_directions": "headway.circuits.directions",
        "circuit_entries": "headway.circuits.entries",
        "circuit_of_token": "headway.circuits.entries",
        "composition_score": "headway.circuits.composition",
        "composition_scores": "headway.circuits.composition",
        "copying_eigenvalues": "headway.circuits.copying",
        "copying_scores": "headway.circuits.copying",
        "copying_token_scores": "headway.circuits.copying_tokens",
        "direct_path_log_probs": "headway.circuits.bigrams",
        "direct_path_study": "headway.circuits.bigrams",
        "low_rank_bigrams": "headway.circuits.smoothing",
        "offset_profile": "headway.circuits.offsets",
        "qk_terms": "headway.circuits.positional",
        "score_terms": "headway.circuits.positional",
        "smoothed_bigrams": "headway.circuits.smoothing",
    },
)
