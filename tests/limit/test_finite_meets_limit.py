"""The deepest shipped program: wide networks have the law's covariances, up to noise and a term of order 1/n.

Others are compared, with their own draws as well, in `test_self_check`.
"""

from __future__ import annotations

import numpy as np
import pytest

import tensorprog as tp

WIDTH = 512


@pytest.mark.slow
@pytest.mark.parametrize("name", ["deep_attention"])
def test_wide_networks_have_the_covariances_of_the_law(name: str) -> None:
    program = tp.load(name)
    law = program.limit()
    covariances = {output: np.asarray(law.cov(output)) for output in law.outputs}
    networks, coordinates = 8_000, 4
    drawn = program.run(WIDTH, networks, seed=11, coordinates=coordinates)
    for output, covariance in covariances.items():
        values = drawn[output].reshape(networks, coordinates, -1)
        products = np.einsum("nci,ncj->nij", values, values) / coordinates
        cov = covariance.reshape(products.shape[1:])
        scale = np.sqrt(np.outer(np.diag(cov), np.diag(cov)))
        noise = products.std(axis=0) / np.sqrt(len(products))
        assert np.all(noise < 0.02 * scale)
        assert np.all(np.abs(products.mean(axis=0) - cov) < 4.9 * noise + 6 / WIDTH * scale)
