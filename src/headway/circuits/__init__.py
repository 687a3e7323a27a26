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
        "component_composition_scores": "headway.circuits.components",
        "composition_score": "headway.circuits.composition",
        "composition_scores": "headway.circuits.composition",
        "copying_eigenvalues": "headway.circuits.copying",
        "copying_scores": "headway.circuits.copying",
        "copying_token_scores": "headway.circuits.copying_tokens",
        "cyclic_scores": "headway.circuits.cyclic",
        "direct_path_log_probs": "headway.circuits.bigrams",
        "direct_path_study": "headway.circuits.bigrams",
        "head_spaces": "headway.circuits.subspaces",
        "induction_scatter": "headway.circuits.scatter",
        "low_rank_bigrams": "headway.circuits.smoothing",
        "offset_profile": "headway.circuits.offsets",
        "match_heads": "headway.circuits.matching",
        "memory_scores": "headway.circuits.memory",
        "ov_circuit": "headway.circuits.ov",
        "projection_kernel": "headway.circuits.kernel",
        "qk_circuit": "headway.circuits.qk",
        "qk_terms": "headway.circuits.positional",
        "score_terms": "headway.circuits.positional",
        "skip_trigram_bugs": "headway.circuits.trigram_bugs",
        "skip_trigrams": "headway.circuits.trigrams",
        "smoothed_bigrams": "headway.circuits.smoothing",
        "space_overlaps": "headway.circuits.subspaces",
        "tight_composition_scores": "headway.circuits.composition",
        "stream_components": "headway.circuits.stream_use",
        "token_basis_composition_scores": "headway.circuits.token_basis",
        "token_term_scores": "headway.circuits.token_terms",
        "virtual": "headway.circuits.virtual_heads",
        "write_shares": "headway.circuits.subspaces",
    },
)
