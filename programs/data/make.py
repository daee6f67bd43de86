"""Writes the token vectors of the shipped programs: two sentences that share most of their words, in 24 dimensions.

    python programs/data/make.py

tokens.npy has 7 + 9 tokens, short.npy 3 + 4, one in each row.  Every occurrence of a word has the same vector, so that
the Gram matrices are singular; vectors of different words have a common part, as word embeddings do.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SENTENCES = {
    "tokens": ("the brown fox jumps over the dog", "the quick brown fox jumps over the lazy dog"),
    "short": ("the fox jumps", "the lazy dog jumps"),
}
DIMENSION, COMMON, SEED = 24, 0.3, 2019


def vectors(name: str) -> NDArray[np.float64]:
    """The token vectors of a pair of sentences, (tokens, 24), with squared lengths near 24."""
    words = sorted({word for sentence in SENTENCES["tokens"] for word in sentence.split()})
    normals = np.random.default_rng(SEED).standard_normal((len(words) + 1, DIMENSION))
    meanings = np.sqrt(COMMON) * normals[0] + np.sqrt(1 - COMMON) * normals[1:]
    return np.round(meanings[[words.index(word) for word in " ".join(SENTENCES[name]).split()]], 3)


if __name__ == "__main__":
    for name in SENTENCES:
        np.save(Path(__file__).with_name(f"{name}.npy"), vectors(name))
