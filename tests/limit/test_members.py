"""Members are taken wherever a name is: standard deviations, covariances and draws of "y[0]"."""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensorprog as tp


@pytest.fixture(scope="module")
def program() -> tp.Program:
    return tp.load("attention", s=2, H=1)


def test_covariances_of_members_are_entries(program: tp.Program) -> None:
    law = program.limit()
    for family, one, two in (("y", (0,), (1,)), ("y", (1,), (1,)), ("p", (0, 0, 1), (0, 1, 1)), ("x", (0,), (1,))):
        whole, wrong = law.cov(family, with_error=True)
        first, second = (f"{family}[{','.join(map(str, index))}]" for index in (one, two))
        value, error = law.cov(first, second, with_error=True)
        assert isinstance(law.cov(first, second), float)
        assert value == pytest.approx(np.asarray(whole)[(*one, *two)], rel=1e-12)
        assert 0 <= error <= np.max(wrong) * (1 + 1e-6)
    assert law.cov("y[0]") == pytest.approx(law.var("y[0]"), rel=1e-12)
    with pytest.raises(tp.ProgramError, match="is not a number in"):
        law.cov("y[0]", "y[7]")


def test_names_that_scipy_has_and_copies(program: tp.Program) -> None:
    law = program.limit()
    assert law.corr("y[0]", "y[1]") == pytest.approx(law.cov("y[0]", "y[1]") / law.std("y[0]") / law.std("y[1]"))
    low, high = law.interval("y[0]", 0.9)
    assert law.sf("y[0]", high) == pytest.approx(0.05) and law.cdf("y[0]", low) == pytest.approx(0.05)
    assert law.logpdf("y[0]", 0.3) == pytest.approx(np.log(law.density("y[0]", 0.3)))
    given = law.given({"p": np.ones((1, 2, 2))})
    for found, ask in (
        (law, lambda own: own.kurtosis("y[0]")),
        (law.cov("p"), np.asarray),
        (given, lambda own: own.cov("y")),
    ):
        np.testing.assert_array_equal(ask(pickle.loads(pickle.dumps(found))), ask(found))


Ask = Callable[[tp.Program, str], Any]  # what is asked of a name, as an array over the members and whatever is behind
LAW: dict[str, Ask] = {
    **{name: lambda P, v, name=name: getattr(P.limit(), name)(v) for name in ("mean", "var", "std", "kurtosis")},
    "moment": lambda P, v: P.limit().moment(v, 3),
    "infinite heads": lambda P, v: P.limit().infinite_heads("a").var(v),
    "draws": lambda P, v: np.moveaxis(P.limit().sample(7, keep=[v])[v], 0, -1),
    "networks": lambda P, v: np.moveaxis(P.run(8, 7, keep=[v])[v], 0, -1),
    "networks.get": lambda P, v: np.moveaxis(np.asarray(P.run(8, 7, keep=[v]).get(v)), 0, -1),
    "formulas of means": lambda P, v: np.asarray(P.limit(symbolic=True).mean(v), dtype=float),
}
PAIRS: dict[str, Ask] = {  # over the members twice
    "cov": lambda P, v: P.limit().cov(v),
    "cov with error": lambda P, v: P.limit().cov(v, with_error=True)[0],
    "second moment": lambda P, v: P.limit().second_moment(v),
    "formulas": lambda P, v: np.vectorize(str)(np.asarray(P.limit(symbolic=True).cov(v), dtype=object)),
    "kernel": lambda P, v: tp.ntk(tp.load("mlp"), {"u": "f"}[v[0]] + v[1:]),
}
GIVEN = {"p": np.random.default_rng(1).normal(size=(3, 1, 2, 2))}


@pytest.mark.parametrize(
    ("name", "family"),
    [
        (name, family)
        for name in LAW
        for family in ("y", "u")
        if (name, family)
        not in {("infinite heads", "u"), ("formulas of means", "y")}  # no output; an average over scores
    ],
)
def test_what_is_asked_of_a_member_is_that_entry_of_its_family(program: tp.Program, name: str, family: str) -> None:
    whole = np.asarray(LAW[name](program, family))
    for member in (0, 1):
        for spelling in (f"{family}[{member}]", f"{family}[ {member} ]"):
            np.testing.assert_allclose(LAW[name](program, spelling), whole[member], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", PAIRS)
def test_what_is_asked_of_two_members_is_that_entry_of_their_families(program: tp.Program, name: str) -> None:
    whole = np.asarray(PAIRS[name](program, "u"))
    for member in (0, 1):
        found = PAIRS[name](program, f"u[{member}]")
        assert np.ndim(found) == 0
        assert found == whole[member, member]


def test_members_given_the_scores(program: tp.Program) -> None:
    found = program.limit().given(GIVEN)
    np.testing.assert_array_equal(found.mean("y[1]"), found.mean("y")[:, 1])
    np.testing.assert_array_equal(found.cov("y[1]"), found.cov("y")[:, 1, 1])


@pytest.mark.parametrize(
    "ask",
    [
        lambda P, v: P.limit().cov(v),
        lambda P, v: P.limit().second_moment(v),
        lambda P, v: P.limit().mean(v),
        lambda P, v: P.limit().sample(3, keep=[v]),
        lambda P, v: P.limit().given(GIVEN).mean(v),
        lambda P, v: P.limit(symbolic=True).cov(v),
        lambda P, v: P.run(8, 3, keep=[v]),
        lambda P, v: P.run(8, 3)[v],
        lambda P, v: tp.plots.covariance(P.limit(), v),
        lambda P, v: P.explain(v),
    ],
)
@pytest.mark.parametrize("name", ["y[2]", "y[0,0]", "nothing[0]", "y[", "", "y[i]"])
def test_what_is_no_member_is_refused(program: tp.Program, ask: Ask, name: str) -> None:
    with pytest.raises((tp.ProgramError, KeyError)):
        ask(program, name)


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
