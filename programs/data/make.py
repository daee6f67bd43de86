"""Writes tokens.npy: 16 token vectors in 24 dimensions, of two sentences that share most of their words.

Every occurrence of a word has the same vector, so the inner products of the 16 tokens have rank 9; vectors of
different words have a common part, as word embeddings do.  Rows 0-6 are the first sentence, rows 7-15 the second.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SENTENCES = ("the brown fox jumps over the dog", "the quick brown fox jumps over the lazy dog")
DIMENSION, COMMON, SEED = 24, 0.3, 2019


def tokens() -> NDArray[np.float64]:
    """The token vectors, (16, 24), with squared lengths near 24."""
    occurrences = [word for sentence in SENTENCES for word in sentence.split()]
    words = sorted(set(occurrences))
    normals = np.random.default_rng(SEED).standard_normal((len(words) + 1, DIMENSION))
    vectors = np.sqrt(COMMON) * normals[0] + np.sqrt(1 - COMMON) * normals[1:]
    return np.round(vectors[[words.index(word) for word in occurrences]], 3)


if __name__ == "__main__":
    np.save(Path(__file__).with_name("tokens.npy"), tokens())
