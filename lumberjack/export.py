"""A fitted forest in other hands: as JSON, as an ONNX graph, and explained by SHAP.

JSON holds the whole model and is read without running anything that a file might hold. ONNX holds
what predicts, for runtimes without Python. Neither contains the seed of a fit, nor its ledger.
"""

from __future__ import annotations

import base64
import copy
import json
import math
import zlib
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, NoReturn

import numpy as np
from sklearn.utils.validation import check_is_fitted

from lumberjack import _guide, _tree
from lumberjack.accounting import Calibration
from lumberjack.domain import FLOAT32_MAX, Domain, unique_keys
from lumberjack.forest import LumberjackClassifier, LumberjackRegressor
from lumberjack.guide import Guide, Score, score_count
from lumberjack.leaves import SCORE_VOTE, SMALLEST_PROBABILITY
from lumberjack.privacy import PrivacyReport, guarantee_text, list_mechanisms, version

__all__ = ["ShapExplainer", "from_json", "shap_explainer", "to_json", "to_onnx"]

Forest = LumberjackClassifier | LumberjackRegressor

FORMAT = "lumberjack model"
TWICE = "it has an entry twice"
FORMAT_VERSION = 1
ESTIMATORS = {own.__name__: own for own in (LumberjackClassifier, LumberjackRegressor)}

# The domain of the fit takes the place of what declared it, so that another fit of a model that was
# read declares the same, and tells again what was read from the data.
DECLARATIONS = {
    "bounds", "categories", "categorical_features", "classes", "target_bounds", "domain",
}  # fmt: skip
SECRETS = {"random_state", "ledger"}

# Sums of numbers within this are finite, whatever a file claims.
LARGEST = 1e100

# By how much zlib can compress at most (its manual: 1032). The number of nodes is not known before
# they are unpacked; so that a small file does not fill the memory, more than 16 MB of them may not
# be compressed by more than is likely.
LARGEST_COMPRESSION = 1100
LIKELY_COMPRESSION = 100
SMALL = 2**24

# The parameters of the guarantee, which the calibration tells, too.
GUARANTEE = (
    "epsilon", "delta", "n_estimators", "max_depth", "leaf", "accounting", "records_per_unit",
)  # fmt: skip

PARTS = ("guide", "structure", "leaves")
# What is infinite in a calibration with an infinite epsilon.
WITHOUT_NOISE = {"epsilon", "mu_guide", "epsilon_leaf"}

MISSING_INTEGER = -(2**63)  # missing in a column of whole numbers of an ONNX graph
MAX_LEAVES = 2**24  # of a tree: their numbers pass through 32-bit floats of an ONNX graph

ENTRIES = {
    "format", "format_version", "lumberjack", "estimator", "parameters", "domain", "privacy",
    "guide", "forest", "leaves", "metadata",
}  # fmt: skip


# JSON -------------------------------------------------------------------------------------------


def to_json(
    model: Forest, *, metadata: Mapping[str, Any] | None = None, allow_inferred: bool = False
) -> str:
    """A fitted forest as JSON.

    All that the model learned comes back from `from_json` to the last bit. Not written are
    `random_state`, which would undo the noise of a seeded fit, and `ledger`: a model that is read
    has None for both. ``privacy_`` still tells that a fit was seeded. Parameters of the guarantee
    that were changed after the fit are written as they were in it.

    Parameters
    ----------
    model : LumberjackClassifier or LumberjackRegressor
        Fitted.
    metadata : dict, default=None
        Anything of your own that JSON can hold, such as the name of the target.
    allow_inferred : bool, default=False
        Export a model although its bounds, categories or classes were read from the data, which
        the guarantee does not cover.

    Returns
    -------
    str
        One JSON object. Arrays with an entry for each node or leaf are little-endian, compressed by
        zlib and in base64; all else is plain.

    Raises
    ------
    TypeError
        The model is no forest, or `metadata` is no dict.
    ValueError
        Part of the domain was read from the data, a parameter was changed after the fit to what
        no fit takes, or a parameter or the metadata cannot be told in JSON.

    See Also
    --------
    from_json : The way back.
    to_onnx : For predictions without Python.

    Examples
    --------
    >>> import numpy as np
    >>> from lumberjack import LumberjackClassifier, export
    >>> X = np.linspace(0, 1, 2000).reshape(-1, 1)
    >>> model = LumberjackClassifier(bounds=(0, 1), classes=[0, 1]).fit(X, X[:, 0] > 0.5)
    >>> text = export.to_json(model)
    >>> same = export.from_json(text)
    >>> np.array_equal(same.predict_proba(X), model.predict_proba(X))
    True
    """
    check_exportable(model, allow_inferred)
    data = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "lumberjack": version(),
        "estimator": type(model).__name__,
        "parameters": write_parameters(model),
        # The order of columns matters, and that of the keys of a JSON object may get lost.
        "domain": {**model.domain_.to_dict(), "columns": list(model.domain_.feature_names)},
        "privacy": json.loads(model.privacy_.to_json()),
        "guide": None if model.guide_ is None else write_guide(model.guide_),
        "forest": write_nodes(model.nodes_),
        "leaves": write_leaves(model),
        "metadata": {} if metadata is None else metadata,
    }
    if not isinstance(data["metadata"], Mapping):
        raise TypeError(f"metadata must be a dict, got {type(metadata).__name__}")
    try:
        # Keys that are no text become text, and may then be there twice.
        told = json.dumps(dict(data["metadata"]), allow_nan=False)
        data["metadata"] = json.loads(told, object_pairs_hook=unique_keys(TWICE))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"the metadata cannot be told in JSON: {error}") from None
    return json.dumps(data, allow_nan=False)


def from_json(text: str | bytes, *, return_metadata: bool = False) -> Any:
    """The forest that `to_json` wrote.

    The text may come from anywhere: it is checked, and nothing in it is run. What it claims about
    privacy is taken over; see `lumberjack.privacy.verify` for a check of that.

    Parameters
    ----------
    text : str or bytes
    return_metadata : bool, default=False

    Returns
    -------
    model : LumberjackClassifier or LumberjackRegressor
        Fitted.
    metadata : dict
        Only if `return_metadata`.

    Raises
    ------
    ValueError
        It is not such a text, or that of a newer version, or its numbers make no forest.

    Examples
    --------
    >>> from lumberjack import export
    >>> export.from_json('{"format": "lumberjack model", "format_version": 99, "lumberjack": "9"}')
    Traceback (most recent call last):
    ...
    ValueError: this model has the format version 99, of lumberjack '9'; this is lumberjack ...
    """
    damaged = "this is not a model of lumberjack"
    try:
        data = json.loads(
            text, parse_constant=refuse_constant, object_pairs_hook=unique_keys(TWICE)
        )
        told = format_version(data)
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{damaged}: {error}") from None
    if told != FORMAT_VERSION:
        raise ValueError(
            f"this model has the format version {told}, of lumberjack {data.get('lumberjack')!r}; "
            f"this is lumberjack {version()}, which reads version {FORMAT_VERSION}: read it with "
            "the other one"
        )
    try:
        model, metadata = read_model(data), of_type(data["metadata"], dict, "metadata")
    except KeyError as error:
        raise ValueError(f"{damaged}: {error} is missing") from None
    except (ValueError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"{damaged}: {error}") from None
    return (model, metadata) if return_metadata else model


def check_exportable(model: Forest, allow_inferred: bool) -> None:
    """Refuse what is not a fitted forest, and a domain that was read from the data."""
    if type(model) not in ESTIMATORS.values():
        raise TypeError(f"only {' and '.join(ESTIMATORS)} can be exported")
    check_is_fitted(model)
    if model.domain_.inferred and not allow_inferred:
        raise ValueError(
            f"this model read from the data: {', '.join(model.domain_.inferred)}; the guarantee "
            "does not cover that. Declare it and fit again, or export the model all the same with "
            "allow_inferred=True"
        )


def format_version(data: Any) -> int:
    """The version of the format, which is all that other versions must have in common."""
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(f"it has no entry format {FORMAT!r}")
    return of_type(data.get("format_version"), int, "format_version")


def read_model(data: dict[str, Any]) -> Forest:
    """The estimator that the entries of a file make."""
    if data.keys() != ENTRIES:
        raise ValueError(f"{min(data.keys() ^ ENTRIES)!r} is unknown or missing")
    kind = ESTIMATORS.get(of_type(data["estimator"], str, "estimator"))
    if kind is None:
        raise ValueError("its estimator is unknown")
    domain = read_domain(data["domain"], kind)
    privacy = PrivacyReport.from_dict(data["privacy"])
    if privacy.inferred != domain.inferred:
        raise ValueError("domain and privacy differ in what was read from the data")
    n_classes = 2 if domain.classes is None else len(domain.classes)
    guide = None if data["guide"] is None else read_guide(data["guide"], domain, n_classes)
    n_scores = 0 if guide is None else guide.score.n_scores
    model = kind(**read_parameters(data["parameters"], domain, kind))
    model._check_parameters()
    nodes, tree_offsets, leaf_offsets = read_nodes(
        data["forest"], domain, n_scores, model.max_depth
    )
    fitted = {
        "domain_": domain,
        "privacy_": privacy,
        "guide_": guide,
        "nodes_": nodes,
        "tree_offsets_": tree_offsets,
        "leaf_offsets_": leaf_offsets,
        **read_leaves(data["leaves"], leaf_offsets[-1], n_classes),
        "n_features_in_": domain.n_features,
    }
    if domain.named:
        fitted["feature_names_in_"] = np.array(domain.feature_names, dtype=object)
    if domain.classes is not None:
        fitted["classes_"] = domain.classes
    model.__dict__.update(fitted)
    check_report(model)
    return model


# Parameters, report and domain


def changed_parameters(model: Forest) -> dict[str, Any]:
    """The parameters that differ from what the report of the fit tells, as it tells them."""
    report = model.privacy_
    told = {
        **{name: getattr(report.calibration, name) for name in GUARANTEE},
        "splitter": "random" if model.guide_ is None else "guided",
    }
    if math.isinf(report.epsilon):
        del told["delta"]  # not used
    return {name: own for name, own in told.items() if not same_value(getattr(model, name), own)}


def same_value(value: Any, told: Any) -> bool:
    """Whether a parameter is what a report tells, but for the type of a number."""
    return float(value) == told if isinstance(value, Real) else value == told


def check_report(model: Forest) -> None:
    """Refuse a report that is not that of the model, or whose numbers make no noise.

    Whether its claim holds is not checked.
    """
    report = model.privacy_
    noise = report.calibration
    if not isinstance(noise, Calibration):
        raise ValueError("its privacy report is not that of a forest")
    if changed := changed_parameters(model):
        raise ValueError(f"parameters and privacy differ in {min(changed)}")
    for name in ("epsilon", "delta", "accounting", "records_per_unit", "threshold", "slack"):
        if getattr(report, name) != getattr(noise, name):
            raise ValueError(f"privacy and its calibration differ in {name}")
    has_noise = noise.epsilon < math.inf
    for name, value in vars(noise).items():
        if not has_noise and name in WITHOUT_NOISE and value == math.inf:
            continue
        if isinstance(value, int | float) and not abs(value) <= LARGEST:
            raise ValueError(f"{name} of the calibration is outside its range")
    positive = (noise.epsilon, noise.delta, noise.sigma_tests, noise.sigma_leaves)
    if has_noise and any(value is not None and value <= 0 for value in positive):
        raise ValueError("epsilon, delta and noise of the calibration are not positive")
    has_counts = noise.leaf == "counts"
    if {has_counts} != {noise.sigma_leaves is not None, hasattr(model, "leaf_counts_")}:
        raise ValueError("only leaves with counts have counts, and noise of counts")
    if (noise.mu_guide > 0) != (model.guide_ is not None):
        raise ValueError("only guided splits have a guide, and a budget for it")
    if tuple(name for name, _ in noise.budget_shares) != PARTS:
        raise ValueError(f"budget_shares are not those of {', '.join(PARTS)}")
    expected, told = (
        [(own.part, own.name, own.queries_per_unit) for own in mechanisms]
        for mechanisms in (list_mechanisms(noise), report.mechanisms)
    )
    if told != expected:
        raise ValueError("the mechanisms are not those of the calibration")


def write_parameters(model: Forest) -> dict[str, Any]:
    """Parameters as plain data, without those that are secret or declare the domain."""
    parameters = model.get_params(deep=False) | changed_parameters(model)
    data = {
        name: plain(value, name)
        for name, value in parameters.items()
        if name not in DECLARATIONS | SECRETS
    }
    type(model)(**parameters)._check_parameters()  # as `read_model` will
    return data


def read_parameters(data: dict[str, Any], domain: Domain, kind: type[Forest]) -> dict[str, Any]:
    """Parameters for the constructor."""
    known = kind().get_params(deep=False).keys() - DECLARATIONS - SECRETS
    unknown = of_type(data, dict, "parameters").keys() - known
    if unknown:
        raise ValueError(f"the parameter {min(unknown)!r} is unknown")
    return {"domain": domain, **{name: from_plain(value) for name, value in data.items()}}


def plain(value: Any, name: str) -> Any:
    """A parameter as JSON can hold it; infinity becomes text, keys that are no text a list."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping):
        items = [[plain(key, name), plain(own, name)] for key, own in value.items()]
        if all(isinstance(key, str) and key != "items" for key, _ in items):
            return dict(items)
        return {"items": items}
    if isinstance(value, list | tuple):
        return [plain(own, name) for own in value]
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Integral | Real):
        return plain(int(value) if isinstance(value, Integral) else float(value), name)
    raise ValueError(
        f"the parameter {name} cannot be told in JSON; set it to plain numbers or text"
    )


def from_plain(value: Any) -> Any:
    """What `plain` was given, tuples as lists."""
    if isinstance(value, list):
        return [from_plain(own) for own in value]
    if isinstance(value, dict):
        if value.keys() == {"items"}:
            return {from_plain(key): from_plain(own) for key, own in value["items"]}
        return {key: from_plain(own) for key, own in value.items()}
    return float(value) if value in ("inf", "-inf") else value


def read_domain(data: dict[str, Any], kind: type[Forest]) -> Domain:
    """The domain, its columns in their order."""
    data = dict(data)
    columns = of_type(data.pop("columns"), list, "columns")
    features = of_type(data["features"], dict, "features")
    if sorted(columns) != sorted(features):
        raise ValueError("columns and features differ")
    for name, form in {"inferred": list, "named": bool, "version": int}.items():
        of_type(data[name], form, name)
    for own in data["inferred"]:
        of_type(own, str, "inferred")
    domain = Domain.from_dict({**data, "features": {name: features[name] for name in columns}})
    is_classifier = kind is LumberjackClassifier
    if (domain.classes is not None, domain.target_bounds is None) != (is_classifier,) * 2:
        raise ValueError("the domain is not that of its estimator")
    return domain


# Trees and leaves


def write_nodes(nodes: np.ndarray) -> dict[str, Any]:
    """The nodes of all trees, depth first.

    Right children, leaf numbers and the ends of the trees follow from where the leaves stand, and
    the kind of a split from the domain: what is not written cannot contradict itself.
    """
    splits = nodes[nodes["feature"] >= 0]
    return {
        "feature": pack(nodes["feature"], "<i4"),
        "threshold": pack(splits["threshold"], "<f4"),
        "missing_left": pack(splits["flags"] & _tree.MISSING_LEFT_FLAG != 0, "|u1"),
    }


def read_nodes(
    data: dict[str, Any], domain: Domain, n_scores: int, max_depth: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The nodes as the kernels read them, which check nothing, and the starts of trees and leaves.

    Parameters
    ----------
    data : dict
        From `write_nodes`, or from a stranger.
    domain : Domain
    n_scores : int
    max_depth : int
        Levels that may be split. What reads the paths of a tree needs memory for each level.

    Returns
    -------
    nodes : structured array of shape (n_nodes,)
    tree_offsets, leaf_offsets : int64 arrays of shape (n_trees + 1,)
    """
    feature = unpack(data["feature"], "feature", "<i4", (None,))
    n_categories = np.append(domain.n_categories, np.zeros(n_scores, dtype=np.int32))
    check_range(feature, "feature", -1, len(n_categories) - 1)
    is_split = feature >= 0
    n_splits = int(is_split.sum())
    threshold = unpack(data["threshold"], "threshold", "<f4", (n_splits,))
    missing_left = unpack(data["missing_left"], "missing_left", "|u1", (n_splits,))
    check_range(missing_left, "missing_left", 0, 1)
    check_range(threshold, "threshold", -LARGEST, LARGEST)
    own = n_categories[feature[is_split]]
    of_category = threshold[own > 0]
    if (of_category < 0).any() or (of_category >= own[own > 0]).any():
        raise ValueError("threshold names a category that is not there")
    if (of_category != np.floor(of_category)).any():
        raise ValueError("threshold of a category is no whole number")
    tree_offsets, right = tree_structure(is_split)
    check_depth(is_split, tree_offsets, right, max_depth)
    nodes = np.zeros(len(feature), dtype=_tree.NODE_DTYPE)
    nodes["feature"], nodes["right"] = feature, right
    nodes["threshold"][is_split] = threshold
    nodes["flags"][is_split] = np.where(own > 0, _tree.CATEGORICAL_FLAG, 0) | np.where(
        missing_left, _tree.MISSING_LEFT_FLAG, 0
    )
    leaves_before = np.concatenate([[0], np.cumsum(~is_split)])
    return nodes, tree_offsets, leaves_before[tree_offsets]


def tree_structure(is_split: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Starts of the trees, and right children and leaf numbers, from the depth-first order.

    After a node the number of subtrees still to come has risen by one, if it is split, or fallen
    by one, if it is a leaf. A tree ends where it falls below all before; the left subtree of a
    node where it first falls below its value after the node.

    Parameters
    ----------
    is_split : bool array of shape (n_nodes,)

    Returns
    -------
    tree_offsets : int64 array of shape (n_trees + 1,)
    right : int64 array of shape (n_nodes,)
        In its tree the right child of a split, the number of a leaf.

    Examples
    --------
    >>> starts, right = tree_structure(np.array([True, True, False, False, False, False]))
    >>> starts.tolist(), right.tolist()
    ([0, 5, 6], [4, 3, 0, 1, 2, 0])
    """
    n_nodes = len(is_split)
    to_come = np.cumsum(np.where(is_split, 1, -1))
    ends = np.flatnonzero(to_come < np.minimum.accumulate(np.append(0, to_come[:-1])))
    if not n_nodes or not len(ends) or ends[-1] != n_nodes - 1 or n_nodes >= 2**31:
        raise ValueError("its nodes make no whole trees")
    tree_offsets = np.append(0, ends + 1)
    starts = np.repeat(tree_offsets[:-1], np.diff(tree_offsets))
    leaf_number = np.cumsum(~is_split) - 1
    leaf_number -= (np.cumsum(~is_split) - ~is_split)[starts]
    # One sorted list of (to_come, position): the next lower value is found by bisection.
    level = (to_come - to_come.min()) * n_nodes
    places = np.sort(level + np.arange(n_nodes))
    split = np.flatnonzero(is_split)
    left_end = places[np.searchsorted(places, level[split] - n_nodes + split)] % n_nodes
    right = leaf_number
    right[split] = left_end + 1 - starts[split]
    return tree_offsets, right


def check_depth(
    is_split: np.ndarray, tree_offsets: np.ndarray, right: np.ndarray, max_depth: int
) -> None:
    """Refuse trees with splits on more than `max_depth` levels.

    Parameters
    ----------
    is_split : bool array of shape (n_nodes,)
    tree_offsets, right : int64 arrays
        From `tree_structure`.
    max_depth : int
    """
    starts = np.repeat(tree_offsets[:-1], np.diff(tree_offsets))
    level = tree_offsets[:-1]
    for _ in range(max_depth):
        level = level[is_split[level]]
        level = np.concatenate([level + 1, starts[level] + right[level]])
    if is_split[level].any():
        raise ValueError("a tree is deeper than max_depth")


def write_leaves(model: Forest) -> dict[str, Any]:
    """What the leaves released, and how it is weighted."""
    leaves = {"votes": pack(model.leaf_votes_, "<f8"), "prior": model.class_prior_.tolist()}
    if hasattr(model, "class_weight_"):
        leaves["class_weight"] = model.class_weight_.tolist()
    if hasattr(model, "leaf_counts_"):
        kind = "<i8" if model.leaf_counts_.dtype.kind == "i" else "<f8"
        leaves["counts"] = pack(model.leaf_counts_, kind)
    return leaves


def read_leaves(data: dict[str, Any], n_leaves: int, n_classes: int) -> dict[str, np.ndarray]:
    """The fitted attributes of the leaves."""
    shape = (int(n_leaves), n_classes)
    fitted = {
        "leaf_votes_": unpack(data["votes"], "votes", "<f8", shape),
        "class_prior_": numbers(data["prior"], "prior", n_classes),
    }
    if "class_weight" in data:
        fitted["class_weight_"] = numbers(data["class_weight"], "class_weight", n_classes)
    for name, array in fitted.items():
        check_range(array, name, 0, LARGEST)
    if "counts" in data:
        kind = "<i8" if data["counts"]["dtype"] == "<i8" else "<f8"
        fitted["leaf_counts_"] = unpack(data["counts"], "counts", kind, shape)
        check_range(fitted["leaf_counts_"], "counts", -LARGEST, LARGEST)
    return fitted


# Guide


def write_guide(guide: Guide) -> dict[str, Any]:
    """The guide as plain data."""
    score = guide.score
    return {
        "inner_edges": [edges.tolist() for edges in score.inner_edges],
        "tables": pack(score.tables, "<f8"),
        "intercepts": score.intercepts.tolist(),
        "feature_weights": guide.feature_weights.tolist(),
        "threshold_cdfs": [
            None if own is None else [np.asarray(part).tolist() for part in own]
            for own in guide.threshold_cdfs
        ],
        "category_weights": [
            None if own is None else own.tolist() for own in guide.category_weights
        ],
        "marginals": pack(np.concatenate(guide.marginals), "<f8"),
    }


def read_guide(data: dict[str, Any], domain: Domain, n_classes: int) -> Guide:
    """The guide; the kernel of its score relies on the sizes and on increasing edges."""
    n_scores = score_count(n_classes)
    n_categories = domain.n_categories
    parts = {
        name: of_length(data[name], name, domain.n_features)
        for name in ("inner_edges", "threshold_cdfs", "category_weights")
    }
    inner_edges: list[np.ndarray] = []
    cdfs: list[tuple[np.ndarray, np.ndarray] | None] = []
    weights: list[np.ndarray | None] = []
    for k, edges, cdf, own in zip(n_categories, *parts.values(), strict=True):
        if k:
            inner_edges.append(increasing(edges, "inner_edges", 0).astype(np.float32))
            cdfs.append(None)
            weights.append(numbers(own, "category_weights", int(k)))
        else:
            inner_edges.append(increasing(edges, "inner_edges").astype(np.float32))
            of_length(cdf, "threshold_cdfs", 2)
            ends = increasing(cdf[0], "threshold_cdfs")
            cdfs.append((ends, increasing(cdf[1], "threshold_cdfs", len(ends))))
            weights.append(None)
    sizes = [
        int(k) + 1 if k else len(own) + 2 for k, own in zip(n_categories, inner_edges, strict=True)
    ]
    score = Score(
        n_categories,
        tuple(inner_edges),
        unpack(data["tables"], "tables", "<f8", (sum(sizes), n_scores)),
        numbers(data["intercepts"], "intercepts", n_scores),
    )
    check_range(score.tables, "tables", -LARGEST, LARGEST)
    feature_weights = numbers(
        data["feature_weights"], "feature_weights", domain.n_features + n_scores
    )
    marginals = unpack(data["marginals"], "marginals", "<f8", (sum(sizes), n_classes))
    check_range(marginals, "marginals", -LARGEST, LARGEST)
    by_feature = tuple(np.split(marginals, np.cumsum(sizes)[:-1]))
    return Guide(score, feature_weights, tuple(cdfs), tuple(weights), by_feature)


# Arrays and checks


def pack(array: np.ndarray, dtype: str) -> dict[str, Any]:
    """An array as plain data."""
    array = np.ascontiguousarray(array, dtype=dtype)
    compressed = base64.b64encode(zlib.compress(array.tobytes(), 9)).decode("ascii")
    return {"dtype": dtype, "shape": list(array.shape), "zlib": compressed}


def unpack(
    data: dict[str, Any], name: str, dtype: str, shape: tuple[int | None, ...]
) -> np.ndarray:
    """The array that `pack` was given, if it has this type and shape (None: any length)."""
    told = of_length(data["shape"], name, len(shape))
    if data["dtype"] != dtype or not all(
        type(size) is int and size >= 0 and expected in (None, size)
        for size, expected in zip(told, shape, strict=True)
    ):
        raise ValueError(f"{name} has the wrong type or shape")
    compressed = base64.b64decode(of_type(data["zlib"], str, name), validate=True)
    size = math.prod(told) * np.dtype(dtype).itemsize
    likely = SMALL + LIKELY_COMPRESSION * len(compressed)
    if size > (likely if None in shape else LARGEST_COMPRESSION * len(compressed)):
        raise ValueError(f"{name} is shorter than it says")
    decompressor = zlib.decompressobj()
    try:
        raw = decompressor.decompress(compressed, size + 1)
    except zlib.error as error:
        raise ValueError(f"{name} is damaged: {error}") from None
    if len(raw) != size or not decompressor.eof:
        raise ValueError(f"{name} is not as long as it says")
    return np.frombuffer(raw, dtype=dtype).reshape(told).astype(np.dtype(dtype).newbyteorder("="))


def numbers(values: Any, name: str, length: int | None = None) -> np.ndarray:
    """A list of numbers, of this length, as an array."""
    of_length(values, name, length)
    if not all(type(value) in (int, float) for value in values):
        raise ValueError(f"{name} holds other things than numbers")
    array = np.array(values, dtype=np.float64)
    check_range(array, name, -LARGEST, LARGEST)
    return array


def increasing(values: Any, name: str, length: int | None = None) -> np.ndarray:
    """A list of numbers that do not decrease, in the range of 32-bit floats, as an array."""
    array = numbers(values, name, length)
    check_range(array, name, -(2.0**127), 2.0**127)
    if (np.diff(array) < 0).any():
        raise ValueError(f"{name} decreases")
    return array


def check_range(array: np.ndarray, name: str, low: float, high: float) -> None:
    """Refuse an array with entries outside a range; NaN is outside of every one."""
    if array.size and not (float(array.min()) >= low and float(array.max()) <= high):
        raise ValueError(f"{name} has an entry outside its range")


def of_type(value: Any, kind: type, name: str) -> Any:
    """The value, if it has the type; a bool is no int."""
    if type(value) is not kind:
        raise ValueError(f"{name} is not of the type {kind.__name__}")
    return value


def of_length(value: Any, name: str, length: int | None = None) -> list:
    """The value, if it is a list of this length."""
    if len(of_type(value, list, name)) != length and length is not None:
        raise ValueError(f"{name} has the wrong length")
    return value


def refuse_constant(name: str) -> NoReturn:
    """Refuse NaN and infinity, which JSON does not know."""
    raise ValueError(f"{name} is no number of JSON")


# ONNX -------------------------------------------------------------------------------------------


def to_onnx(model: Forest, *, missing_category: str = "", allow_inferred: bool = False) -> Any:
    """A fitted forest, with the score of its guide, as one ONNX graph.

    Parameters
    ----------
    model : LumberjackClassifier or LumberjackRegressor
        Fitted.
    missing_category : str, default=""
        Text that stands for a missing value in a column of text.
    allow_inferred : bool, default=False
        Export a model although its bounds, categories or classes were read from the data, which
        the guarantee does not cover.

    Returns
    -------
    onnx.ModelProto
        ``onnx.save(graph, "model.onnx")`` writes it to a file. Its metadata tell the guarantee:
        "guarantee" in words, "privacy_report" in JSON.

    Raises
    ------
    ImportError
        onnx, which is optional, is not installed.
    ValueError
        Part of the domain was read from the data; a column has both text and numbers as
        categories, or `missing_category` as one; the name of a column cannot be that of an
        input; or the types of ONNX cannot hold a class, a category or a bound of the target.

    Notes
    -----
    **Inputs** are columns of shape (n_rows, 1) under their names, or "X" of shape (n_rows,
    n_features) if the model was fitted on an array of numbers.

    =================================  =======  ==================
    column                             type     missing value
    =================================  =======  ==================
    numeric                            float32  NaN
    categories: text                   string   `missing_category`
    categories: whole numbers, bool    int64    -2^63
    categories: other numbers          float64  NaN
    =================================  =======  ==================

    Unknown categories and values outside the bounds are no errors. Infinite values, which the model
    refuses, count as just outside the bounds.

    **Outputs** of a classifier are "output_label" of shape (n_rows,) and "output_probability" of
    shape (n_rows, n_classes), float32, in the order of ``classes_``; of a regressor "output_value"
    of shape (n_rows, 1), float32.

    A row falls into the same leaves as by the model, and nothing is rounded below 64 bits before
    the end, after the label was chosen. Rounding to float32 changes a probability by at most 1e-7,
    a value by as much of the larger of its bounds. The graph uses opset 18 and ai.onnx.ml 3; while
    it runs, it needs 16 bytes for each row, tree and class, so pass many rows in batches.

    Examples
    --------
    >>> import numpy as np
    >>> from lumberjack import LumberjackClassifier, export
    >>> X = np.linspace(0, 1, 2000).reshape(-1, 1)
    >>> model = LumberjackClassifier(bounds=(0, 1), classes=["low", "high"])
    >>> graph = export.to_onnx(model.fit(X, np.where(X[:, 0] > 0.5, "high", "low")))
    >>> from onnxruntime import InferenceSession
    >>> session = InferenceSession(graph.SerializeToString())
    >>> labels, probabilities = session.run(None, {"X": np.array([[0.1], [0.9]], dtype=np.float32)})
    >>> labels.tolist(), probabilities.shape
    (['low', 'high'], (2, 2))
    """
    check_exportable(model, allow_inferred)
    check_onnx_values(model.domain_, missing_category)
    graph = OnnxGraph()
    table = add_inputs(graph, model.domain_, missing_category)
    values = graph.add("Cast", table, to=graph.types.DOUBLE)
    scores = None
    if model.guide_ is not None:
        scores = add_score(graph, table, model.guide_.score)
        values = graph.add("Concat", values, scores, axis=1)
    leaves = add_trees(graph, values, model)
    probabilities = add_vote(graph, leaves, scores, model)
    if hasattr(model, "class_weight_"):
        weights = graph.constant([model.class_weight_])
        probabilities = add_shares(graph, graph.add("Mul", probabilities, weights))
    add_outputs(graph, probabilities, model)
    report = model.privacy_
    return graph.finish(
        {
            "lumberjack": version(),
            "guarantee": guarantee_text(report.epsilon, report.delta),
            "privacy_report": report.to_json(),
        }
    )


def check_onnx_values(domain: Domain, missing_category: str) -> None:
    """Refuse names, classes, categories and bounds of the target that no graph can hold."""
    classes = [] if domain.classes is None else domain.classes.tolist()
    texts = {
        "name of a column": domain.feature_names,
        "category": [value for own in domain.categories for value in own or ()],
        "class": classes,
        "missing_category": [missing_category],
    }
    for what, values in texts.items():
        if not all(is_unicode(value) for value in values if isinstance(value, str)):
            raise ValueError(
                f"a {what} has a surrogate, which is no character: ONNX cannot hold it; rename it "
                "and fit again"
            )
    if any(isinstance(own, int) and not -(2**63) <= own < 2**63 for own in classes):
        raise ValueError(
            "a class is beyond the 64-bit integers of ONNX; declare text or smaller numbers, and "
            "fit again"
        )
    if max(map(abs, domain.target_bounds or [0])) > FLOAT32_MAX:
        raise ValueError(
            "target_bounds are beyond the 32-bit floats of the output; declare the target in a "
            "larger unit, and fit again"
        )


def is_unicode(text: str) -> bool:
    """Whether text can be told in UTF-8.

    >>> is_unicode("\N{WATER WAVE}"), is_unicode("\\ud83c")
    (True, False)
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


class OnnxGraph:
    """An ONNX graph to which nodes are added one by one.

    Attributes
    ----------
    types : onnx.TensorProto
        Holds the numbers of the types.
    """

    opsets = {"": 18, "ai.onnx.ml": 3}
    ir_version = 8
    prefix = "lumberjack/"  # of all names but those of inputs and outputs

    def __init__(self) -> None:
        try:
            import onnx
        except ImportError:
            raise ImportError(
                "to_onnx needs onnx: python -m pip install 'lumberjack-dp[onnx]'"
            ) from None
        self._onnx = onnx
        self.types = onnx.TensorProto
        self._nodes: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._constants: list[Any] = []

    def input(self, name: str, kind: int, width: int) -> str:
        """Add an input of shape (n_rows, width)."""
        info = self._onnx.helper.make_tensor_value_info(name, kind, ["n_rows", width])
        self._inputs.append(info)
        return name

    def constant(self, values: Any, dtype: Any = None) -> str:
        """Add a constant array."""
        name = f"{self.prefix}constant_{len(self._constants)}"
        array = np.asarray(values, dtype=dtype)
        self._constants.append(self._onnx.numpy_helper.from_array(array, name))
        return name

    def tensor(self, values: np.ndarray) -> Any:
        """An array as an attribute of a node."""
        return self._onnx.numpy_helper.from_array(values)

    def add(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node, and return the name of what it computes."""
        name = f"{self.prefix}{operator}_{len(self._nodes)}"
        self._nodes.append(
            self._onnx.helper.make_node(operator, inputs, [name], domain=domain, **attributes)
        )
        return name

    def output(self, name: str, kind: int, shape: list[Any], value: str) -> None:
        """Make a value an output."""
        self._nodes.append(self._onnx.helper.make_node("Identity", [value], [name]))
        self._outputs.append(self._onnx.helper.make_tensor_value_info(name, kind, shape))

    def finish(self, metadata: dict[str, str]) -> Any:
        """The graph as a checked model."""
        helper = self._onnx.helper
        graph = helper.make_graph(
            self._nodes, "lumberjack", self._inputs, self._outputs, self._constants
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid(*own) for own in self.opsets.items()],
            ir_version=self.ir_version,
            producer_name="lumberjack",
            producer_version=version(),
        )
        helper.set_model_props(model, metadata)
        self._onnx.checker.check_model(model, full_check=True)
        return model

    def sum_in_order(self, terms: str, axis: int, length: int) -> str:
        """The sum over an axis from the first term to the last, as the kernels add."""
        sums = self.add("CumSum", terms, self.constant(axis, np.int64))
        return self.add("Gather", sums, self.constant(length - 1, np.int64), axis=axis)


# Inputs


def add_inputs(graph: OnnxGraph, domain: Domain, missing_category: str) -> str:
    """Add the columns, and return the encoded matrix of shape (n_rows, n_features), float32."""
    if not domain.named and not domain.is_categorical.any():
        return graph.input("X", graph.types.FLOAT, domain.n_features)
    codes = []
    for name, categories in zip(domain.feature_names, domain.categories, strict=True):
        if not name or name.startswith((graph.prefix, "output_")):
            raise ValueError(
                f"a column named {name!r} cannot be an input: names are not empty and do not begin "
                f"with 'output_' or {graph.prefix!r}; rename it and fit again"
            )
        if categories is None:
            codes.append(graph.input(name, graph.types.FLOAT, 1))
        else:
            codes.append(add_category(graph, name, categories, missing_category))
    return graph.add("Concat", *codes, axis=1)


def add_category(graph: OnnxGraph, name: str, categories: tuple, missing_category: str) -> str:
    """Add a categorical column, and return its codes: places, -1 if unknown, NaN if missing."""
    is_text = [isinstance(value, str) for value in categories]
    codes = np.append(np.arange(len(categories), dtype=np.float32), np.float32(np.nan))
    if all(is_text):
        if missing_category in categories:
            raise ValueError(
                f"missing_category={missing_category!r} is a category of {name!r}: choose another "
                "text"
            )
        column = graph.input(name, graph.types.STRING, 1)
        keys = {"keys_strings": [*categories, missing_category]}
    elif any(is_text):
        raise ValueError(
            f"the categories of {name!r} are text and numbers; make all of them text and fit again"
        )
    elif all(value == int(value) and abs(value) <= 2**53 for value in categories):
        column = graph.input(name, graph.types.INT64, 1)
        keys = {"keys_int64s": [*map(int, categories), MISSING_INTEGER]}
    else:
        column = graph.input(name, graph.types.DOUBLE, 1)
        return add_real_category(graph, column, categories)
    return graph.add(
        "LabelEncoder", column, domain="ai.onnx.ml", **keys, values_floats=codes, default_float=-1.0
    )


def add_real_category(graph: OnnxGraph, column: str, categories: tuple) -> str:
    """The codes of a column of real numbers, which no LabelEncoder of this opset reads."""
    equal = graph.add("Equal", column, graph.constant([list(categories)], np.float64))
    places = graph.constant([np.arange(1, len(categories) + 1)], np.float32)
    found = graph.add("Mul", graph.add("Cast", equal, to=graph.types.FLOAT), places)
    place = graph.add("ReduceMax", found, graph.constant([1], np.int64), keepdims=1)
    code = graph.add("Sub", place, graph.constant(1, np.float32))
    is_missing = graph.add("IsNaN", column)
    return graph.add("Where", is_missing, graph.constant(np.nan, np.float32), code)


# Score, trees, vote


def add_score(graph: OnnxGraph, table: str, score: Score) -> str:
    """Add the scores, log-odds of shape (n_rows, n_scores), float64.

    A value becomes the number of its cell, the cells pick from the tables, and the intercept joins
    the entries of the first feature, so that terms are added in the order of the kernel.
    """
    cell_start = score.binning().cell_start
    n_cells = cell_start[-1]
    no_cell = np.full(len(cell_start) - 1, n_cells)
    no_cell[0] = n_cells + 1
    tables = np.vstack([score.tables, np.zeros_like(score.intercepts), score.intercepts])
    tables[: cell_start[1]] += score.intercepts
    is_numeric = score.n_categories == 0
    order = np.append(np.flatnonzero(is_numeric), np.flatnonzero(~is_numeric))
    parts = []
    if is_numeric.any():
        own = np.flatnonzero(is_numeric)
        edges = [score.inner_edges[f] for f in own]
        parts.append(add_bins(graph, pick(graph, table, own), edges, cell_start[own]))
    if not is_numeric.all():
        own = np.flatnonzero(~is_numeric)
        codes = pick(graph, table, own)
        n_categories = score.n_categories[own]
        parts.append(add_category_cells(graph, codes, n_categories, cell_start[own], no_cell[own]))
    cells = pick(graph, graph.add("Concat", *parts, axis=1), np.argsort(order))
    terms = graph.add("Gather", graph.constant(tables), cells, axis=0)
    return graph.sum_in_order(terms, 1, len(order))


def pick(graph: OnnxGraph, matrix: str, columns: Any) -> str:
    """Columns of a matrix."""
    return graph.add("Gather", matrix, graph.constant(columns, np.int64), axis=1)


def add_bins(graph: OnnxGraph, values: str, edges: list[np.ndarray], starts: np.ndarray) -> str:
    """Cells of numeric columns: as many inner edges lie below a value, or the last if missing."""
    padded = np.full((1, len(edges), max(1, *map(len, edges))), np.inf, dtype=np.float32)
    for f, own in enumerate(edges):
        padded[0, f, : len(own)] = own
    column = graph.add("Unsqueeze", values, graph.constant([2], np.int64))
    below = graph.add("Less", graph.constant(padded), column)
    passed = graph.add(
        "ReduceSum",
        graph.add("Cast", below, to=graph.types.INT64),
        graph.constant([2], np.int64),
        keepdims=0,
    )
    missing = graph.constant([[len(own) + 1 for own in edges]], np.int64)
    cell = graph.add("Where", graph.add("IsNaN", values), missing, passed)
    return graph.add("Add", cell, graph.constant([starts], np.int64))


def add_category_cells(
    graph: OnnxGraph,
    codes: str,
    n_categories: np.ndarray,
    starts: np.ndarray,
    no_cell: np.ndarray,
) -> str:
    """Cells of encoded categorical columns; the last of a feature is for missing values."""
    missing = graph.constant([n_categories], np.float32)
    known = graph.add("Where", graph.add("IsNaN", codes), missing, codes)
    place = graph.add("Cast", known, to=graph.types.INT64)
    cell = graph.add("Add", place, graph.constant([starts], np.int64))
    unknown = graph.add("Less", place, graph.constant(0, np.int64))
    return graph.add("Where", unknown, graph.constant([no_cell], np.int64), cell)


def add_trees(graph: OnnxGraph, values: str, model: Forest) -> str:
    """Add all trees; what comes out is the number of each row's leaf in each tree, as float32."""
    starts = model.tree_offsets_
    n_trees = len(starts) - 1
    if np.diff(model.leaf_offsets_).max() > MAX_LEAVES:
        raise ValueError("a tree has more leaves than 32-bit floats can number, 2^24")
    nodes = model.nodes_
    is_leaf = nodes["feature"] < 0
    is_category = nodes["flags"] & _tree.CATEGORICAL_FLAG != 0
    tree = np.repeat(np.arange(n_trees), np.diff(starts))
    position = np.arange(len(nodes)) - starts[tree]
    kinds = np.where(is_leaf, "LEAF", np.where(is_category, "BRANCH_EQ", "BRANCH_LEQ"))
    missing_left = nodes["flags"] & _tree.MISSING_LEFT_FLAG != 0
    constants = {
        "nodes_values_as_tensor": onnx_thresholds(model),
        "target_weights_as_tensor": nodes["right"][is_leaf].astype(np.float64),
    }
    return graph.add(
        "TreeEnsembleRegressor",
        values,
        domain="ai.onnx.ml",
        n_targets=n_trees,
        nodes_treeids=tree,
        nodes_nodeids=position,
        nodes_featureids=np.where(is_leaf, 0, nodes["feature"]),
        nodes_modes=kinds.tolist(),
        nodes_truenodeids=np.where(is_leaf, 0, position + 1),
        nodes_falsenodeids=np.where(is_leaf, 0, nodes["right"]),
        nodes_missing_value_tracks_true=missing_left.astype(np.int64),
        target_treeids=tree[is_leaf],
        target_nodeids=position[is_leaf],
        target_ids=tree[is_leaf],
        **{name: graph.tensor(array) for name, array in constants.items()},
    )


def onnx_thresholds(model: Forest) -> np.ndarray:
    """Thresholds of all nodes for columns and log-odds, float64."""
    thresholds = model.nodes_["threshold"].astype(np.float64)
    if model.guide_ is not None:
        for number in range(model.guide_.score.n_scores):
            own = model.nodes_["feature"] == model.domain_.n_features + number
            thresholds[own] = score_limits(model.guide_.score, number, thresholds[own])
    return thresholds


def score_limits(score: Score, number: int, thresholds: np.ndarray) -> np.ndarray:
    """The largest log-odds whose score column is at most a threshold.

    The column rises with the log-odds. Comparing these instead, the graph needs no exponential that
    agrees with the kernel's to the last bit.

    Parameters
    ----------
    score : guide.Score
    number : int
        Which score.
    thresholds : float64 array of shape (n_thresholds,)

    Returns
    -------
    float64 array of shape (n_thresholds,)
        Plus or minus infinity where all log-odds, or none, are below.
    """
    if not len(thresholds):
        return thresholds
    centre = score.intercepts[number]
    centres = np.full(len(thresholds), centre)
    record = np.zeros((1, 1), dtype=np.float32)
    no_table = np.zeros((2, len(thresholds)))
    binning = _guide.Binning([1], [None])

    def is_below(log_odds: np.ndarray) -> np.ndarray:
        # The kernel takes the log-odds as the intercepts of many scores of one record.
        z = np.empty((len(thresholds), 1), dtype=np.float32)
        _guide.evaluate_score(record, False, binning, no_table, log_odds, centres, z)
        return z[:, 0] <= thresholds

    high = np.full(len(thresholds), 1000.0 + abs(centre))  # exp(1000) is infinite
    low = -high
    all_below, none_below = is_below(high), ~is_below(low)
    middle = np.zeros(len(thresholds))
    while ((middle > low) & (middle < high)).any():
        below = is_below(middle)
        low, high = np.where(below, middle, low), np.where(below, high, middle)
        middle = low + (high - low) / 2
    return np.where(all_below, np.inf, np.where(none_below, -np.inf, low))


def add_vote(graph: OnnxGraph, leaves: str, scores: str | None, model: Forest) -> str:
    """Add the vote of leaves and score, as `BaseLumberjack._probabilities` counts it."""
    n_trees = len(model.leaf_offsets_) - 1
    number = graph.add("Cast", leaves, to=graph.types.INT64)
    row = graph.add("Add", number, graph.constant([model.leaf_offsets_[:-1]], np.int64))
    ballots = graph.add("Gather", graph.constant(model.leaf_votes_), row, axis=0)
    votes = graph.sum_in_order(ballots, 1, n_trees)
    total = add_total(graph, votes)
    is_silent = graph.add("Equal", total, graph.constant(0.0))
    votes = graph.add("Where", is_silent, graph.constant([model.class_prior_]), votes)
    total = graph.add("Where", is_silent, graph.constant(1.0), total)
    forest = graph.add("Div", votes, total)
    if scores is None:
        return forest
    of_score = add_score_probabilities(graph, scores, model.guide_.score.n_scores)
    parts = [
        graph.add("Mul", graph.add("Log", add_floor(graph, own)), graph.constant(weight))
        for own, weight in ((forest, 1 - SCORE_VOTE), (of_score, SCORE_VOTE))
    ]
    return add_shares(graph, graph.add("Exp", graph.add("Add", *parts)))


def add_shares(graph: OnnxGraph, values: str) -> str:
    """Values divided by their sums over the classes."""
    return graph.add("Div", values, add_total(graph, values))


def add_total(graph: OnnxGraph, values: str) -> str:
    """Sums over the classes, of shape (n_rows, 1)."""
    return graph.add("ReduceSum", values, graph.constant([1], np.int64), keepdims=1)


def add_floor(graph: OnnxGraph, probabilities: str) -> str:
    """Probabilities of which none is too small for a logarithm."""
    return graph.add("Max", probabilities, graph.constant(SMALLEST_PROBABILITY))


def add_score_probabilities(graph: OnnxGraph, scores: str, n_scores: int) -> str:
    """Class probabilities by the scores, of shape (n_rows, n_classes)."""
    one = graph.constant(1.0)
    odds = graph.add("Exp", graph.add("Neg", scores))
    own = graph.add("Div", one, graph.add("Add", one, odds))
    if n_scores == 1:
        return graph.add("Concat", graph.add("Sub", one, own), own, axis=1)
    total = add_total(graph, own)
    is_known = graph.add("Greater", total, graph.constant(0.0))
    share = graph.add("Div", own, total)
    return graph.add("Where", is_known, share, graph.constant(1 / n_scores))


def add_outputs(graph: OnnxGraph, probabilities: str, model: Forest) -> None:
    """Add label and probabilities, or the value of a regression."""
    types = graph.types
    if isinstance(model, LumberjackRegressor):
        low, high = model.domain_.target_bounds
        share = pick(graph, probabilities, [1])
        value = graph.add("Mul", share, graph.constant(high - low))
        value = graph.add("Add", value, graph.constant(low))
        graph.output(
            "output_value", types.FLOAT, ["n_rows", 1], graph.add("Cast", value, to=types.FLOAT)
        )
        return
    classes = model.classes_
    kind, dtype = {
        "U": (types.STRING, object),
        "b": (types.BOOL, np.bool_),
        "f": (types.DOUBLE, np.float64),
    }.get(classes.dtype.kind, (types.INT64, np.int64))
    best = graph.add("ArgMax", probabilities, axis=1, keepdims=0)
    label = graph.add("Gather", graph.constant(classes, dtype), best)
    graph.output("output_label", kind, ["n_rows"], label)
    rounded = graph.add("Cast", probabilities, to=types.FLOAT)
    graph.output("output_probability", types.FLOAT, ["n_rows", len(classes)], rounded)


# SHAP -------------------------------------------------------------------------------------------


def shap_explainer(model: Forest, background: Any, **options: Any) -> ShapExplainer:
    """An explainer of SHAP for frames with text and missing values.

    ``shap.Explainer(model.predict_proba, background)`` does for numbers, but stops at text. Here
    SHAP sees the encoded table, which also makes it several times faster.

    Parameters
    ----------
    model : LumberjackClassifier or LumberjackRegressor
        Fitted.
    background : DataFrame or array-like of shape (n_background, n_features)
        Rows to compare with; SHAP draws 100 of more. They are not covered by the guarantee of the
        model: take public or made-up records, or keep the explanations to yourself.
    **options
        For `shap.Explainer`, such as ``algorithm="exact"``.

    Returns
    -------
    ShapExplainer
        Called with a table, it returns a `shap.Explanation`.

    Raises
    ------
    ImportError
        shap, which is optional, is not installed.
    TypeError
        The model is no forest.

    Notes
    -----
    For each row and class the values sum to the probability, or the prediction of a regressor, less
    ``base_values``. A vote of weighted leaves is no sum over trees, so explainers that read trees
    (`shap.TreeExplainer`) do not apply.

    Examples
    --------
    >>> import pandas as pd
    >>> from lumberjack import LumberjackClassifier, export
    >>> people = pd.DataFrame({"age": [20, 40, None, 60] * 500, "sex": ["f", "f", "m", "m"] * 500})
    >>> model = LumberjackClassifier(
    ...     bounds={"age": (17, 90)}, categories={"sex": ["f", "m"]}, classes=[False, True]
    ... ).fit(people, people["sex"] == "m")
    >>> explainer = export.shap_explainer(model, people[:50])  # doctest: +SKIP
    >>> explanation = explainer(people[:3])  # doctest: +SKIP
    >>> explanation.shape  # doctest: +SKIP
    (3, 2, 2)
    >>> (explanation.values.sum(axis=1) + explanation.base_values).round(6).tolist() == (
    ...     model.predict_proba(people[:3]).round(6).tolist()
    ... )  # doctest: +SKIP
    True
    """
    if not isinstance(model, tuple(ESTIMATORS.values())):
        raise TypeError(f"only {' and '.join(ESTIMATORS)} can be explained")
    check_is_fitted(model)
    try:
        import shap
    except ImportError:
        raise ImportError(
            "shap_explainer needs shap: python -m pip install 'lumberjack-dp[shap]'"
        ) from None
    codes = model.domain_.encode(background, layout="rows").astype(np.float64)
    masker = shap.maskers.Independent(codes)
    # SHAP skips what a change by less than 1e-5 of a value would do; a threshold may lie between.
    masker.invariants = lambda row: row == masker.data
    twin = for_codes(model)
    explainer = shap.Explainer(
        getattr(twin, "predict_proba", twin.predict),
        masker,
        feature_names=list(model.domain_.feature_names),
        **options,
    )
    return ShapExplainer(model, explainer)


class ShapExplainer:
    """Explains the predictions for a table; made by `shap_explainer`.

    Parameters
    ----------
    model : LumberjackClassifier or LumberjackRegressor
        Fitted.
    explainer : shap.Explainer
        For tables that the domain of the model encoded.

    Examples
    --------
    >>> import numpy as np
    >>> from lumberjack import LumberjackClassifier, export
    >>> X = np.linspace(0, 1, 2000).reshape(-1, 1)
    >>> model = LumberjackClassifier(bounds=(0, 1), classes=[0, 1]).fit(X, X[:, 0] > 0.5)
    >>> explainer = export.shap_explainer(model, X[::100])  # doctest: +SKIP
    >>> explainer(X[:3]).shape  # doctest: +SKIP
    (3, 1, 2)
    """

    def __init__(self, model: Forest, explainer: Any) -> None:
        self.model, self.explainer = model, explainer

    def __call__(self, X: Any, **options: Any) -> Any:
        """Explain rows.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_samples, n_features)
        **options
            For the explainer, such as ``max_evals=2000`` or ``silent=True``.

        Returns
        -------
        shap.Explanation
            Of shape (n_samples, n_features, n_classes), or (n_samples, n_features) for a regressor.
            ``data`` holds codes for categories, ``display_data`` the table as it was given.
        """
        domain = self.model.domain_
        explanation = self.explainer(domain.encode(X, layout="rows").astype(np.float64), **options)
        if hasattr(type(X), "columns") and domain.named:
            X = X[list(domain.feature_names)]
        explanation.display_data = np.asarray(X, dtype=object)
        if domain.classes is not None:
            explanation.output_names = [str(label) for label in domain.classes.tolist()]
        return explanation


def for_codes(model: Forest) -> Forest:
    """A copy of a model for tables that are encoded: its categories are their own codes."""
    domain = model.domain_
    twin = copy.copy(model)
    twin.domain_ = Domain(
        domain.feature_names,
        domain.lower,
        domain.upper,
        tuple(None if own is None else range(len(own)) for own in domain.categories),
        domain.classes,
        domain.inferred,
        False,
        domain.target_bounds,
    )
    return twin
