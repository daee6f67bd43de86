"""Definition 1: second moments of vectors, covariances of scores and averages, with errors, as structured terms."""
