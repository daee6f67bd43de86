"""The infinite-width limit: Definition 1 compiled, sampled and asked for numbers."""
