"""Members are taken wherever a name is: standard deviations, covariances and draws of "y[0]"."""

import numpy as np
import pytest

import tensorprog as tp


@pytest.fixture(scope="module")
def program() -> tp.Program:
    return tp.load("attention", s=2, H=1)


def test_standard_deviations_and_their_errors(program: tp.Program) -> None:
    law = program.limit()
    value, error = law.std("y[0]", with_error=True)
    variance, wrong = law.var("y[0]", with_error=True)
    assert value == np.sqrt(variance)
    assert error == pytest.approx(wrong / (2 * value), rel=1e-3)
    np.testing.assert_array_equal(law.std("y"), np.sqrt(law.var("y")))
    assert isinstance(law.std("y[1]"), float)


def test_covariances_of_members_are_entries(program: tp.Program) -> None:
    law = program.limit()
    for family, one, two in (("y", (0,), (1,)), ("y", (1,), (1,)), ("p", (0, 0, 1), (0, 1, 1)), ("x", (0,), (1,))):
        whole, wrong = law.cov(family, with_error=True)
        first, second = (f"{family}[{','.join(map(str, index))}]" for index in (one, two))
        value, error = law.cov(first, second, with_error=True)
        assert isinstance(law.cov(first, second), float)
        assert value == np.asarray(whole)[(*one, *two)]
        assert 0 <= error <= np.max(wrong)
    assert law.cov("y[0]") == law.var("y[0]")
    with pytest.raises(tp.ProgramError, match="name a whole family"):
        law.cov("y[0]", "y")
    with pytest.raises(tp.ProgramError, match="is not a number in"):
        law.cov("y[0]", "y[7]")


def test_draws_of_members(program: tp.Program) -> None:
    net = program.run(8, 5, coordinates=2)
    np.testing.assert_array_equal(net["y[1]"], net["y"][:, :, 1])
    np.testing.assert_array_equal(net["p[0,1,0]"], net["p"][:, 0, 1, 0])
    assert "y[1]" not in net
    assert list(net) == [name for name in net if "[" not in name]
    with pytest.raises(tp.ProgramError, match="is not a member"):
        net["y[2]"]
    with pytest.raises(tp.ProgramError, match="was not kept"):
        net["x[0]"]
