"""What the framework paper says of its models, each with the rule that decides whether ours agree.

The rules were written down, and committed, before any of the numbers they are about was seen. A verdict is one of three:
our models `supports` the claim, `differs`, or we `cannot tell`. Shares are compared by the same rule throughout: at least
half of the paper's share supports, less than a quarter differs; our models are small and see other text.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

SUPPORTS, DIFFERS, CANNOT_TELL = "supports", "differs", "cannot tell"
COPIES_Z = 2.0  # sd above the null from which on a head's copying counts as significant
COMPOSES_Z = 3.0  # sd above the null from which on two heads count as composing


def _never(_: float) -> bool:
    return False


@dataclass(frozen=True)
class Claim:
    """A published claim: where it stands, what is measured, the paper's number, and the rule.

    supports, differs: of the measured value, never both true; where neither is, or there is no value, we cannot tell.
    """

    id: str
    section: str
    claim: str
    paper: str
    measure: str
    rule: str
    supports: Callable[[float], bool]
    differs: Callable[[float], bool]

    def verdict(self, value: float | None) -> str:
        """What the rule says of a value.

        >>> CLAIMS[0].verdict(0.01), CLAIMS[0].verdict(0.5), CLAIMS[0].verdict(None)
        ('supports', 'differs', 'cannot tell')
        """
        if value is None or math.isnan(value):
            return CANNOT_TELL
        return SUPPORTS if self.supports(value) else DIFFERS if self.differs(value) else CANNOT_TELL


CLAIMS = (
    Claim(
        "bigrams",
        "Zero-Layer Transformers",
        "a zero-layer model is a table of bigram log-likelihoods",
        "no number",
        "zero-layer: held-out loss of W_U W_E above that of the best smoothed bigram table, nats a token",
        "supports at most 0.05; differs above 0.2",
        lambda x: x <= 0.05,
        lambda x: x > 0.2,
    ),
    Claim(
        "copying-one-layer",
        "Summarizing OV/QK Matrices: Copying",
        "most heads of a one-layer model copy",
        "10 of 12 heads (0.83)",
        f"one-layer: share of heads with copying > 0 and {COPIES_Z:g} sd above its null",
        "supports at least 0.42; differs below 0.21",
        lambda x: x >= 10 / 24,
        lambda x: x < 10 / 48,
    ),
    Claim(
        "copying-two-layer",
        "Two-Layer Attention-Only Transformers",
        "most second-layer heads copy",
        "7 of 12 heads (0.58)",
        f"two-layer: share of L1 heads with copying > 0 and {COPIES_Z:g} sd above its null",
        "supports at least 0.29; differs below 0.15",
        lambda x: x >= 7 / 24,
        lambda x: x < 7 / 48,
    ),
    Claim(
        "positional-heads",
        "Other Interesting Skip-Trigrams and Positional Heads",
        "a few heads attend by position",
        "a few of 12",
        "one-layer: share of heads whose position x position scores vary more than their content x content scores",
        "supports more than 0 and at most 0.5; differs at 0 or above 0.75",
        lambda x: 0 < x <= 0.5,
        lambda x: x == 0 or x > 0.75,
    ),
    Claim(
        "skip-trigrams-copy",
        "Interpretation as Skip-Trigrams",
        "most skip-trigrams are copying, as it is or spelled in two tokens",
        "no number",
        "one-layer: share of copying forms among the 100 skip-trigrams with the largest effects, all heads together",
        "supports at least 0.5; differs below 0.1",
        lambda x: x >= 0.5,
        lambda x: x < 0.1,
    ),
    Claim(
        "bugs",
        "Skip-Trigram Bugs",
        "a head that raises two skip-trigrams of one source must raise the two crossed ones too",
        "3 examples",
        "one-layer: crossed triples that are raised and that the text does not support, found from the same 100",
        "supports at least 1; differs at 0",
        lambda x: x >= 1,
        lambda x: x == 0,
    ),
    Claim(
        "bug-cost",
        "Skip-Trigram Bugs",
        "the bugs cost loss",
        "not measured",
        "one-layer: held-out loss that correcting each triple by itself takes off, nats a token, largest of all heads",
        "the paper gives no number: supports when it is more than 2 standard errors above 0; differs never",
        lambda x: x > 2,
        _never,
    ),
    Claim(
        "composition-below-chance",
        "Composition of heads, figure of scores",
        "most pairs compose much less than random matrices",
        "no number",
        "two-layer: share of all Q-, K- and V-pairs with a score below the null's root mean square",
        "supports at least 0.5; differs below 0.25",
        lambda x: x >= 0.5,
        lambda x: x < 0.25,
    ),
    Claim(
        "k-composition-only",
        "Two-Layer: no significant Q- or V-composition",
        "only K-composition is significant",
        "no number",
        "two-layer: largest K-composition above chance over the largest Q- or V-composition above chance",
        "supports at least 2; differs below 1",
        lambda x: x >= 2,
        lambda x: x < 1,
    ),
    Claim(
        "previous-token-writer",
        "How do induction heads work",
        "induction heads K-compose with one previous-token head",
        "all 7 heads",
        "two-layer: share of induction heads whose best K-writer is the L0 head with the highest previous-token score",
        "supports at 1; differs at 0",
        lambda x: x == 1,
        lambda x: x == 0,
    ),
    Claim(
        "positive-corner",
        "Checking the mechanistic theory",
        "induction heads alone have both the token-level K-term's and OV's eigenvalues positive",
        "7 heads in the corner",
        "two-layer: least of both positivities over induction heads minus the most that any other L1 head has of both",
        "supports above 0; differs below -0.5",
        lambda x: x > 0,
        lambda x: x < -0.5,
    ),
    Claim(
        "erratum-previous-token",
        "Comments: the corrected diagram",
        "the corrected score leaves the previous-token head the strongest K-writer of the induction heads",
        "unchanged",
        "two-layer: share of induction heads whose best K-writer is the same by the Frobenius and by the cyclic score",
        "supports at 1; differs at 0",
        lambda x: x == 1,
        lambda x: x == 0,
    ),
    Claim(
        "erratum-second-writer",
        "Comments: the corrected diagram",
        "induction heads also K-compose with a head that attends to the last several tokens",
        "2 of 7 heads (0.29)",
        f"two-layer: share of induction heads with another K-writer, z at least {COMPOSES_Z:g}, that gives the 5 positions "
        "before it at least 0.4 of its attention",
        "supports at least 0.14; differs below 0.07",
        lambda x: x >= 1 / 7,
        lambda x: x < 1 / 14,
    ),
    Claim(
        "virtual-heads-small",
        "Term Importance Analysis",
        "virtual heads matter little",
        "0.3 of 7.3 nats (0.04)",
        "two-layer: share of order 2 in all that the orders take off the uniform loss",
        "supports at most 0.1; differs above 0.25",
        lambda x: x <= 0.1,
        lambda x: x > 0.25,
    ),
    Claim(
        "embedding-dimensions",
        "Footnote 6",
        "embedding and unembedding use a small part of the stream's dimensions",
        "no number",
        "two-layer: share of d_model that holds 0.9 of the variance of normalised W_E and W_U together",
        "supports at most 0.5; differs above 0.8",
        lambda x: x <= 0.5,
        lambda x: x > 0.8,
    ),
    Claim(
        "memory-heads",
        "Footnote 7",
        "some heads delete what they see at the present token",
        "no number",
        f"both models: heads with copying at most -0.5, {COPIES_Z:g} sd below its null, and at least 0.4 of attention on "
        "the present token",
        "supports at least 1; differs never: a small model need not have one",
        lambda x: x >= 1,
        _never,
    ),
)
