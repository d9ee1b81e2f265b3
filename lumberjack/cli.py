"""The command ``lumberjack``: demo, fit, predict, budget, ledger, inspect, export, verify.

What it prints is public or an output of the mechanism; a test score is neither and is marked.
Errors take one line on standard error and exit status 2; a claim that does not hold is status 1.
Errors about a table go to whoever holds it: they name files and columns, never a value, a row or
a count.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from sklearn.metrics import r2_score, roc_auc_score

from lumberjack import (
    Domain,
    LumberjackClassifier,
    LumberjackRegressor,
    PrivacyLeakWarning,
    PrivacyReport,
    demo,
    export,
    files,
    inspection,
    ledger,
)
from lumberjack.accounting import calibrate
from lumberjack.arguments import make_parser
from lumberjack.files import CommandError
from lumberjack.parameters import resolve_shares
from lumberjack.privacy import NEIGHBOURING, Verification, guarantee_text, verify

# Sizes of the domain enter a budget only through the allowance for finite precision, far below
# the digits that are printed.
BUDGET_DOMAIN = {"n_features": 100, "n_classes": 2}

DEMO_TEST_FRACTION = 0.2
BAR = 40  # characters
TEST_SCORE = "outside the guarantee: the test records are not protected"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Parameters
    ----------
    arguments : list of str, default=None
        By default those of the process.

    Returns
    -------
    int
        Exit status: 0, 1 if a claim does not hold, or 2 after an error.
    """
    try:
        args = make_parser().parse_args(arguments)
        status = COMMANDS[args.command](args)
        sys.stdout.flush()
    except CommandError as error:
        say("error", error)
        return 2
    except KeyboardInterrupt:
        say("error", "interrupted")
        return 130
    except OSError as error:
        # Standard output is full or its reader went away; keep the flush at exit from failing, too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return 1
        say("error", f"the output cannot be written: {error.strerror}")
        return 2
    return status or 0


def say(kind: str, message: object) -> None:
    """Print an error or a warning in one line on standard error."""
    print(f"lumberjack: {kind}: {' '.join(str(message).split())}", file=sys.stderr)


@contextmanager
def library_errors() -> Iterator[None]:
    """Turn what the library refuses into an error of one line, and leaks into warnings of one."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def show_leak(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if issubclass(category, PrivacyLeakWarning):
                say("warning", message)
            else:
                show(message, category, filename, lineno, file, line)

        warnings.simplefilter("always", PrivacyLeakWarning)
        warnings.showwarning = show_leak
        try:
            yield
        except (ValueError, TypeError, ImportError) as error:
            raise CommandError(error) from error


# lumberjack fit, predict ------------------------------------------------------------------------


def run_fit(args: argparse.Namespace) -> None:
    """Train a forest on a table, print its guarantee and write it."""
    files.check_writable(args.out)
    account = files.open_ledger(args.ledger) if args.ledger else None
    tell = reporter(args)
    tell(f"reading {args.table}")
    X, y, domain = read_training(args)
    model = make_forest(args, domain)
    train, test = split_records(len(y), args.test_fraction, args.random_state)
    with library_errors(), account or nullcontext():
        fit_watched(model, X[train], y[train], args)
        # What was paid for is kept, whatever becomes of the score.
        files.write_model(args.out, model, args.target, args.missing)
        score = score_text(model, X[test], y[test]) if args.test_fraction else None
    if score:
        print(f"test {score} ({TEST_SCORE})")
    print(model.privacy_)
    if account:
        print(account)
    print(f"model: {args.out}")


def make_forest(args: argparse.Namespace, domain: files.Declaration) -> Any:
    """Return the estimator that the arguments ask for, not yet trained."""
    check_leaf(args.leaf, domain.regression)
    kind: Any = LumberjackRegressor if domain.regression else LumberjackClassifier
    more = {} if domain.regression else {"leaf": args.leaf}
    return kind(
        args.trees,
        epsilon=args.epsilon,
        delta=args.delta,
        max_depth=args.depth,
        splitter=args.splitter,
        accounting=args.accounting,
        threshold=args.threshold,
        records_per_unit=args.records_per_unit,
        n_jobs=args.n_jobs,
        random_state=args.random_state,
        **more,
        **domain.parameters,
    )


def check_leaf(leaf: str, regression: bool) -> None:
    """Refuse leaves that a regression does not have."""
    if regression and leaf != "counts":
        raise CommandError(f"--leaf {leaf} is for classes: leaves of a regression give counts")


def reporter(args: argparse.Namespace) -> Any:
    """Return what tells, if somebody watches, what is going on; all of it is public."""
    return (lambda text: say("now", text)) if is_watched(args) else (lambda text: None)


def is_watched(args: argparse.Namespace) -> bool:
    """Whether to show progress: on a terminal, or where it is asked for."""
    return args.verbose or sys.stderr.isatty()


def fit_watched(model: Any, X: Any, y: Any, args: argparse.Namespace) -> None:
    """Fit a model with a progress bar on standard error, if somebody watches.

    What else the library prints then, the report on the guarantee, comes at the end anyway.
    """
    reporter(args)(f"growing {model.n_estimators} trees")
    printed = sys.stderr if args.verbose else StringIO()
    with redirect_stdout(printed):
        model.set_params(verbose=int(is_watched(args))).fit(X, y)
    model.set_params(verbose=0)


def read_training(args: argparse.Namespace) -> tuple[Any, Any, files.Declaration]:
    """Return features, target and declared domain for `fit` and `demo`."""
    table = files.read_table(args.table, args.missing)
    features = files.choose_features(table, args.table, args.target, args.drop)
    if args.domain:
        domain = files.read_domain(
            args.domain, args.table, table.columns, features, args.target, args.regression
        )
    elif args.infer_domain:
        domain = files.infer_domain(features, args.regression)
    else:
        print(files.domain_template(table, features, args.target, args.regression))
        raise CommandError(
            "the domain is not declared: replace the capitals in the template on standard output "
            "by what is publicly known, not by what the records show, and give the file as "
            "--domain FILE.json (for a target that is a number, see --regression); or take "
            "--infer-domain, which is outside the guarantee"
        )
    X = files.read_features(table, domain.kinds)
    y = files.read_column(table[args.target], domain.target_kind)
    check_records(X, y, domain)
    return X, y, domain


def check_records(X: Any, y: Any, domain: files.Declaration) -> None:
    """Refuse records that a fit or a score would refuse, before any budget is spent.

    What is inferred here is thrown away: the fit infers from its own records, and warns.
    """
    with library_errors(), warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        found = Domain.declare(X, y, **domain.parameters, regression=domain.regression)
        found.encode(X)
        if domain.regression:
            found.read_target(y)
        else:
            found.encode_classes(y)


def split_records(
    n_records: int, test_fraction: float | None, random_state: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return masks of the training and of the test records.

    Each record throws its own coin, so that one record more or less changes nothing for the
    others and the guarantee holds for the whole table; a test set of fixed size would not do.
    """
    if test_fraction is None:
        return np.ones(n_records, dtype=bool), np.zeros(n_records, dtype=bool)
    test = np.random.default_rng(random_state).random(n_records) < test_fraction
    if test.all() or not test.any():
        raise CommandError("--test-fraction leaves no records for training or for the test")
    return ~test, test


def score_text(model: Any, X: Any, y: Any) -> str:
    """Return the scores of a model as text: accuracy and, of two classes, AUC; or R^2.

    An active ledger records that they were looked at. A label that the model does not know, as it
    was read from other records, counts as wrong.
    """
    if ledger.record_exact_score(None, type(model).__name__):
        warnings.warn(ledger.EXACT_SCORE, PrivacyLeakWarning, stacklevel=2)
    if isinstance(model, LumberjackRegressor):
        return f"R^2 {r2_score(model.domain_.read_target(y), model.predict(X)):.4f}"
    probabilities = model.predict_proba(X)
    codes = model.domain_.encode_classes(y, allow_unknown=True)
    text = f"accuracy {np.mean(probabilities.argmax(axis=1) == codes):.4f}"
    if len(model.classes_) == 2 and set(codes.tolist()) == {0, 1}:
        text += f", AUC {roc_auc_score(codes, probabilities[:, 1]):.4f}"
    return text


def run_predict(args: argparse.Namespace) -> None:
    """Write the predictions for a table."""
    if args.out:
        files.check_writable(args.out)
    model, target, missing = files.read_model(args.model)
    if args.proba and isinstance(model, LumberjackRegressor):
        raise CommandError(f"--proba is for classes, but {args.model} predicts a number")
    tell = reporter(args)
    tell(f"reading {args.table}")
    table = files.read_table(args.table, missing if args.missing is None else args.missing)
    domain = model.domain_
    absent = [name for name in domain.feature_names if name not in table.columns]
    if absent:
        raise CommandError(f"{args.table} lacks {files.listed(absent)}, which the model needs")
    kinds = {
        name: files.kind_of(own)
        for name, own in zip(domain.feature_names, domain.categories, strict=True)
    }
    tell("predicting")
    with library_errors():
        columns = predict_columns(model, files.read_features(table, kinds), target, args.proba)
    if args.out:
        files.write_columns(args.out, columns)
    else:
        sys.stdout.write(files.csv_text(columns))


def predict_columns(model: Any, X: Any, target: str, proba: bool) -> dict[str, list[Any]]:
    """Return the predictions as columns, whose names must differ."""
    if isinstance(model, LumberjackRegressor):
        return {target: model.predict(X).tolist()}
    probabilities = model.predict_proba(X)
    columns = {target: model.classes_[probabilities.argmax(axis=1)].tolist()}
    if proba:
        for label, column in zip(model.classes_.tolist(), probabilities.T.tolist(), strict=True):
            name = f"probability of {label}"
            if name in columns:
                raise CommandError(
                    f"--proba would write two columns named {name!r}: rename the target of the "
                    "table and fit again, or leave out --proba"
                )
            columns[name] = column
    return columns


# lumberjack budget, ledger ----------------------------------------------------------------------


def run_budget(args: argparse.Namespace) -> None:
    """Print the noise that a guarantee needs, and what to expect of it."""
    check_leaf(args.leaf, args.regression)
    with library_errors():
        noise = calibrate(
            args.epsilon,
            args.delta,
            n_estimators=args.trees,
            max_depth=args.depth,
            leaf=args.leaf,
            accounting=args.accounting,
            budget_shares=resolve_shares(None, args.splitter, args.accounting),
            records_per_unit=args.records_per_unit,
            threshold=args.threshold,
            soft_labels=args.regression,
            **BUDGET_DOMAIN,
        )
    print(f"{guarantee_text(noise.epsilon, noise.delta)}, {NEIGHBOURING}")
    same = 2 ** args.depth.bit_length() - 1
    print(
        f"{args.trees} trees of depth {args.depth}, {args.splitter} splits, leaf {args.leaf}, "
        f"accounting {args.accounting}"
        + (f" (depth {same} costs the same)" if same > args.depth else "")
    )
    print(f"sigma = {short(noise.sigma_tests)}: noise of a test, in records")
    print(f"Delta = {short(noise.slack)}: slack of the tests, in records")
    print(f"tau = {short(noise.threshold)}: records with which a node is split half the time")
    if noise.sigma_leaves is not None:
        print(f"leaf noise = {short(noise.sigma_leaves)}: of each class count, in records")
    if noise.epsilon_leaf is not None:
        print(f"leaf epsilon = {short(noise.epsilon_leaf)}: a record's weight in a leaf's choice")
    if args.records:
        print(expectation(args.records, noise.threshold))


def expectation(n_records: int, threshold: float) -> str:
    """Return what a number of records leads to expect; a rule of thumb."""
    leaves = max(1, round(n_records / threshold))
    text = (
        f"to expect (a rule of thumb from --records alone): tau = {short(threshold, 3)}: about "
        f"{leaves:,} {'leaf' if leaves == 1 else 'leaves'} a tree for {n_records:,} records"
    )
    if n_records < 2 * threshold:
        text += (
            "\nfewer than 2 tau records: most trees will likely be a single leaf; use fewer trees, "
            "a smaller depth or a larger epsilon"
        )
    return text


def short(value: float, digits: int = 4) -> str:
    """Return a number with four digits, or more if it is a large one.

    >>> short(427.738), short(0.0432891), short(123456.7)
    ('427.7', '0.04329', '123,457')
    """
    return f"{value:,.0f}" if 10**digits <= value < math.inf else f"{value:.{digits}g}"


def run_ledger(args: argparse.Namespace) -> None:
    """Make or show a ledger."""
    given = {
        "epsilon": args.epsilon,
        "delta": args.delta,
        "records_per_unit": args.records_per_unit,
        "exponential_share": args.majority_share,
    }
    terms = {name: value for name, value in given.items() if value is not None}
    if terms and not {"epsilon", "delta"} <= terms.keys():
        raise CommandError("a ledger is made with both --epsilon and --delta")
    account = files.open_ledger(args.ledger, **terms)
    with library_errors():
        print(account)
        if args.share:
            epsilon, delta = account.share(args.share)
            print(f"each of {args.share} more fits: --epsilon {epsilon!r} --delta {delta!r}")


# lumberjack inspect, export, verify -------------------------------------------------------------


def run_inspect(args: argparse.Namespace) -> None:
    """Print what a model holds, and draw it."""
    if args.figure:
        demo.check_picture(args.figure)
    model, target, _ = files.read_model(args.model)
    figure = demo.new_figure((11, 8)) if args.figure else None
    sizes = np.diff(model.leaf_offsets_)
    with library_errors():
        tree = inspection.export_text(model, args.tree, max_depth=args.max_depth)
        importances = rank_importances(model)
        advice = inspection.advise(model)
        if figure is not None:
            draw_model(figure, model, args.tree, importances)
            demo.save_figure(figure, args.figure)
        print(f"{type(model).__name__} of {target}: {len(sizes)} trees, {sizes.sum()} leaves")
        print(model.domain_)
        print(f"\n{model.privacy_}")
        if math.isfinite(model.privacy_.epsilon):
            print(f"budget: {budget_bar(model)}")
        if importances:
            print("\nimportances (from what is released; they cost no privacy):")
            print("\n".join(bars(importances)))
        print(f"\ntree {args.tree}:\n{tree}")
        for line in advice:
            print(f"advice: {line}")
        if figure is not None:
            print(f"figure: {args.figure}")


def bars(shares: list[tuple[str, float]]) -> Iterator[str]:
    """Yield a bar of text for each share."""
    width = max(len(name) for name, _ in shares)
    for name, share in shares:
        yield f"  {name:{width}} {share:6.1%} {'#' * round(BAR * share)}".rstrip()


def rank_importances(model: Any) -> list[tuple[str, float]]:
    """Return features with their importances, largest first; none without counts."""
    if not hasattr(model, "leaf_counts_"):
        return []
    found = zip(
        model.domain_.feature_names, inspection.feature_importances(model).tolist(), strict=True
    )
    return sorted(found, key=lambda pair: -pair[1])


def budget_bar(model: Any) -> str:
    """Return the shares of the budget as a bar of text."""
    shares = inspection.PrivacyBudgetDisplay(model.privacy_).rho_shares
    return " | ".join(
        f"{part} {share:.0%} {'#' * round(BAR * share)}" for part, share in shares.items()
    )


def draw_model(
    figure: Any, model: Any, tree: int, importances: list[tuple[str, float]], most: int = 15
) -> None:
    """Draw budget, importances and the top of a tree."""
    top, bottom = figure.subfigures(2, 1, height_ratios=(2, 3))
    left, right = (part.subplots() for part in top.subfigures(1, 2))
    if math.isfinite(model.privacy_.epsilon):
        inspection.PrivacyBudgetDisplay.from_estimator(model, ax=left)
    else:
        left.set_axis_off()
    names, shares = zip(*(importances[:most] or [("", 0.0)]), strict=True)
    right.barh(names, shares, color=inspection.COLOURS[0])
    right.invert_yaxis()
    right.set(title="Importances", xlabel="share")
    inspection.plot_tree(model, tree, max_depth=2, fontsize=8, ax=bottom.subplots())
    bottom.suptitle(f"Top of tree {tree}")


def run_export(args: argparse.Namespace) -> None:
    """Write a model as an ONNX graph, or its report."""
    if not (args.onnx or args.report):
        raise CommandError("say what to export: --onnx FILE or --report FILE.json")
    for path in filter(None, (args.onnx, args.report)):
        files.check_writable(path)
    model = files.read_model(args.model).model
    with library_errors():
        if args.onnx:
            graph = export.to_onnx(model, allow_inferred=args.allow_inferred)
            with files.whole_file(args.onnx) as file:
                file.write(graph.SerializeToString())
        if args.report:
            with files.whole_file(args.report) as file:
                file.write(model.privacy_.to_json().encode("utf-8"))


def run_verify(args: argparse.Namespace) -> int:
    """Recompute the delta of a model or a report; the exit status is 1 if its claim fails."""
    found = verify_file(args.model)
    print(found)
    return 0 if found.holds else 1


def verify_file(path: Path) -> Verification:
    """Verify the report in a file, or that of a model, which must be as large as it says."""
    data = files.read_json(path, "a model or a privacy report")
    if data.get("format") == export.FORMAT:
        return verify_model(files.read_model(path).model)
    if not {"format", "epsilon", "delta", "mechanisms"} <= data.keys():
        raise CommandError(
            f"{path} is neither a model that lumberjack fit wrote nor a privacy report, which "
            "lumberjack export MODEL --report FILE.json writes"
        )
    try:
        return verify(PrivacyReport.from_dict(data))
    except ValueError as error:
        raise CommandError(f"{path}: {error}") from None


def verify_model(model: Any) -> Verification:
    """Verify the report of a model."""
    sizes = {"n_features": model.domain_.n_features, "n_classes": len(model.class_prior_)}
    found = verify(model.privacy_, **sizes)
    n_trees = len(model.tree_offsets_) - 1
    told = model.privacy_.calibration.n_estimators
    if n_trees == told:
        return found
    problem = f"the model holds {n_trees} trees, its report tells of {told}"
    return found._replace(holds=False, problems=(*found.problems, problem))


# lumberjack demo --------------------------------------------------------------------------------


def run_demo(args: argparse.Namespace) -> None:
    """Compare a private forest with fully random trees."""
    if args.data:
        compare_on_table(args)
    elif args.target or args.domain or args.drop or args.missing:
        raise CommandError("--target, --domain, --drop and --missing need --data TABLE")
    else:
        with library_errors():
            demo.compare_on_toy(args.trees, args.out)


def compare_on_table(args: argparse.Namespace) -> None:
    """Compare both methods on a table."""
    if args.out:
        raise CommandError("--out is for the picture of the toy; there is none with --data")
    if not args.target:
        raise CommandError("--data needs --target NAME, the column to predict")
    args.table, args.infer_domain, args.regression = args.data, args.domain is None, False
    X, y, domain = read_training(args)
    if domain.regression:
        raise CommandError(f"{args.target!r} is declared as a number; the demo compares classes")
    train, test = split_records(len(y), DEMO_TEST_FRACTION, None)
    with library_errors():
        pair = demo.fit_both(args.trees, X[train], y[train], domain.parameters)
        scores = [score_text(model, X[test], y[test]) for model in pair]
    print(f"On a random fifth of {args.data} ({TEST_SCORE}):")
    print(f"private forest:     {scores[0]}")
    print(f"fully random trees: {scores[1]}")
    print(demo.SETTINGS.format(n_trees=args.trees))
    demo.print_guarantees(*pair)


COMMANDS: dict[str, Callable[[argparse.Namespace], int | None]] = {
    "demo": run_demo,
    "fit": run_fit,
    "predict": run_predict,
    "budget": run_budget,
    "ledger": run_ledger,
    "inspect": run_inspect,
    "export": run_export,
    "verify": run_verify,
}
