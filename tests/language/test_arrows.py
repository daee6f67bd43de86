"""Groups and orders of directed graphs, beside networkx."""

from __future__ import annotations

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

from tensorprog.language.arrows import acyclic, components, ordered

GRAPHS = st.integers(0, 9).flatmap(
    lambda n: st.lists(
        st.tuples(st.integers(0, max(n - 1, 0)), st.integers(0, max(n - 1, 0))), max_size=20 if n else 0
    ).map(lambda edges: {node: [b for a, b in edges if a == node] for node in range(n)})
)


@given(GRAPHS)
def test_groups_and_their_order_are_those_of_networkx(after: dict[int, list[int]]) -> None:
    graph = nx.DiGraph(after)
    found = components(after)
    assert {frozenset(group) for group in found} == {*map(frozenset, nx.strongly_connected_components(graph))}
    number = {node: k for k, group in enumerate(found) for node in group}
    assert all(number[b] <= number[a] for a, b in graph.edges)  # a group comes before those that lead to it
    whole = nx.condensation(graph)
    for key in (int, lambda node: -node):
        order = nx.lexicographical_topological_sort(
            whole, key=lambda c, key=key: min(map(key, whole.nodes[c]["members"]))
        )
        assert ordered(after, key) == [sorted(whole.nodes[c]["members"], key=key) for c in order]
    assert acyclic(after) == nx.is_directed_acyclic_graph(graph)


def test_a_long_chain_is_no_deep_recursion() -> None:
    after = {k: [k + 1] if k < 20_000 else [0] for k in range(20_001)}
    assert len(components(after)) == 1
    assert not acyclic(after)
    assert acyclic({k: [k + 1] for k in range(20_000)} | {20_000: []})
