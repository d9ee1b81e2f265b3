"""Released trees as plain arrays."""

from typing import NamedTuple

import numpy as np
from scipy import sparse

from lumberjack import _tree


class Tree(NamedTuple):
    """The arrays of one released tree, one entry a node, nodes in depth-first order.

    Attributes
    ----------
    children_left, children_right : int32 arrays
        Index of the children, -1 in a leaf.
    feature : int32 array
        Feature that is split, -1 in a leaf.
    threshold : float32 array
        A numeric value ``x <= threshold`` goes left; for a categorical split the code of the
        category that goes left (its position in ``domain_.categories``); 0 in a leaf.
    is_categorical, missing_go_to_left : bool arrays
    leaf : int32 array
        Row of `votes` that belongs to the node, -1 in a split node.
    votes : float64 array of shape (n_leaves, n_classes)
        What each leaf adds to the classes when it votes.
    """

    children_left: np.ndarray
    children_right: np.ndarray
    feature: np.ndarray
    threshold: np.ndarray
    is_categorical: np.ndarray
    missing_go_to_left: np.ndarray
    leaf: np.ndarray
    votes: np.ndarray


def read_tree(nodes: np.ndarray, votes: np.ndarray) -> Tree:
    """The plain arrays of one tree from its packed nodes."""
    is_leaf = nodes["feature"] < 0
    positions = np.arange(len(nodes), dtype=np.int32)
    return Tree(
        children_left=np.where(is_leaf, -1, positions + 1).astype(np.int32),
        children_right=np.where(is_leaf, -1, nodes["right"]).astype(np.int32),
        feature=nodes["feature"].copy(),
        threshold=nodes["threshold"].copy(),
        is_categorical=(nodes["flags"] & _tree.CATEGORICAL_FLAG) != 0,
        missing_go_to_left=(nodes["flags"] & _tree.MISSING_LEFT_FLAG) != 0,
        leaf=np.where(is_leaf, nodes["right"], -1).astype(np.int32),
        votes=votes,
    )


def split_levels(tree: Tree) -> list[np.ndarray]:
    """The split nodes of each level, from the root down."""
    levels = []
    nodes = np.zeros(1, dtype=np.int64)
    while len(nodes := nodes[tree.children_left[nodes] >= 0]):
        levels.append(nodes)
        nodes = np.concatenate([tree.children_left[nodes], tree.children_right[nodes]])
    return levels


def path_matrix(tree: Tree, nodes: np.ndarray | None = None) -> sparse.csr_array:
    """Sparse matrix whose row i marks the node ``nodes[i]``, by default i, and its ancestors."""
    n_nodes = len(tree.feature)
    parents = np.full(n_nodes, -1)
    for children in (tree.children_left, tree.children_right):
        split = np.flatnonzero(children >= 0)
        parents[children[split]] = split
    current = np.arange(n_nodes) if nodes is None else nodes
    n_rows = len(current)
    rows, columns, own = [], [], np.arange(n_rows)
    while len(own):
        rows.append(own)
        columns.append(current)
        current = parents[current]
        own, current = own[current >= 0], current[current >= 0]
    places = np.concatenate(rows), np.concatenate(columns)
    ones = np.ones(len(places[0]), dtype=np.int64)
    return sparse.csr_array((ones, places), shape=(n_rows, n_nodes))
