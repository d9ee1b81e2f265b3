"""The command ``lumberjack``: demo, fit, predict, budget, verify.

What it prints is public or an output of the mechanism; a test score is neither and is marked.
Errors take one line on standard error and exit status 2; a claim that does not hold is status 1.
Those about a table go to whoever holds
it: they name files and columns, never a value, a row or a count.
"""

import argparse
import csv
import io
import json
import math
import os
import pickle
import secrets
import sys
import warnings
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from sklearn.metrics import roc_auc_score

from lumberjack import Domain, LumberjackClassifier, PrivacyLeakWarning, __version__
from lumberjack.accounting import calibrate
from lumberjack.datasets import make_moons_and_blob
from lumberjack.parameters import MAX_DEPTH, resolve_shares
from lumberjack.privacy import NEIGHBOURING, PrivacyReport, guarantee_text, verify

MODEL_FORMAT = 1

# Sizes of the domain enter a budget only through the allowance for finite precision, far below
# the digits that are printed.
BUDGET_DOMAIN = {"n_features": 100, "n_classes": 2}

# The paper's Figure 1.
PRIVATE = {"epsilon": 2.0, "delta": 1e-6, "max_depth": 100}
FULLY_RANDOM = {"epsilon": math.inf, "threshold": 1, "max_depth": 10}
BOTH = {"splitter": "random", "leaf": "majority", "accounting": "split", "n_jobs": -1}
SCALES = (1, 10, 1000)
CLASSES = ("blue", "green", "red")
DEMO_TEST_FRACTION = 0.2
COLOURS = ("#3b6fb6", "#4f9d55", "#c9453d")
PICTURE = "lumberjack-demo.png"
PICTURE_FORMATS = (".png", ".pdf", ".svg")

NO_MATPLOTLIB = "it needs matplotlib (the extra 'plot'): python -m pip install matplotlib"

TEST_SCORE = "outside the guarantee: the test records are not protected"


class CommandError(Exception):
    """An expected error, shown in one line."""


def main(arguments=None):
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
        status = args.run(args)
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


def say(kind, message):
    """Print an error or a warning in one line on standard error."""
    print(f"lumberjack: {kind}: {' '.join(str(message).split())}", file=sys.stderr)


@contextmanager
def library_errors():
    """Turn what the library refuses into an error of one line, and leaks into warnings of one."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def show_leak(message, category, *rest, **options):
            if issubclass(category, PrivacyLeakWarning):
                say("warning", message)
            else:
                show(message, category, *rest, **options)

        warnings.simplefilter("always", PrivacyLeakWarning)
        warnings.showwarning = show_leak
        try:
            yield
        except (ValueError, TypeError) as error:
            raise CommandError(error) from error


# Arguments --------------------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    """A parser whose errors take one line."""

    def error(self, message):
        raise CommandError(f"{message} (see {self.prog} --help)")


def make_parser():
    """Return the parser of the command."""
    parser = Parser(
        prog="lumberjack",
        description="Differentially private random forests.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"lumberjack {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    add_demo(commands)
    add_fit(commands)
    add_predict(commands)
    add_budget(commands)
    add_verify(commands)
    return parser


def add_command(commands, name, run, help):
    """Add a subcommand."""
    text = help[0].upper() + help[1:] + "."
    command = commands.add_parser(name, help=help, description=text, allow_abbrev=False)
    command.set_defaults(run=run)
    return command


def add_demo(commands):
    """Add ``lumberjack demo``."""
    command = add_command(
        commands, "demo", run_demo, "compare a private forest with fully random trees on a toy"
    )
    add = command.add_argument
    add("--trees", type=positive_integer, default=25, metavar="K", help="trees (25)")
    add("--out", type=Path, metavar="FILE", help=f"where the picture goes ({PICTURE})")
    add("--data", type=Path, metavar="TABLE.csv", help="compare on this table, not on the toy")
    add("--target", metavar="NAME", help="column to predict, with --data")
    text = "declared domain, with --data; read from the table if not given"
    add("--domain", type=Path, metavar="FILE.json", help=text)
    add_drop(command)
    add_missing(command)


def add_fit(commands):
    """Add ``lumberjack fit``."""
    command = add_command(commands, "fit", run_fit, "train a private forest on a table")
    add = command.add_argument
    add("table", type=Path, metavar="TABLE.csv", help="CSV file, also .csv.gz")
    add("--target", required=True, metavar="NAME", help="column to predict")
    add("--out", required=True, type=Path, metavar="MODEL", help="where the model goes")
    add_forest(command)
    either = command.add_mutually_exclusive_group().add_argument
    text = 'public bounds, categories and classes: {"age": [17, 90], "income": ["low", "high"]}'
    either("--domain", type=Path, metavar="FILE.json", help=text)
    text = "read them from the table, outside the guarantee"
    either("--infer-domain", action="store_true", help=text)
    add_drop(command)
    add_missing(command)
    text = "leave out this share of the records and print the score on them"
    add("--test-fraction", type=fraction, metavar="F", help=text)
    text = "threads (all cores); they do not change the result"
    add("--n-jobs", type=int, default=-1, metavar="N", help=text)
    text = "make the result reproducible; voids the guarantee against whoever knows it"
    add("--random-state", type=seed, metavar="S", help=text)


def add_predict(commands):
    """Add ``lumberjack predict``."""
    command = add_command(commands, "predict", run_predict, "predict with a trained forest")
    add = command.add_argument
    add("model", type=Path, metavar="MODEL", help="file that fit wrote")
    add("table", type=Path, metavar="TABLE.csv", help="CSV file, also .csv.gz")
    add("--out", type=Path, metavar="FILE.csv", help="where the predictions go (standard output)")
    add("--proba", action="store_true", help="add the probability of each class")
    add_missing(command, " (as given to fit)")


def add_budget(commands):
    """Add ``lumberjack budget``."""
    command = add_command(commands, "budget", run_budget, "show the noise that a guarantee needs")
    add_forest(command)
    text = "a public estimate of the number of records: tells what to expect"
    command.add_argument("--records", type=positive_integer, metavar="N", help=text)


def add_verify(commands):
    """Add ``lumberjack verify``."""
    text = "check the guarantee that a model or a report claims"
    command = add_command(commands, "verify", run_verify, text)
    text = "file that fit wrote, or a privacy report in JSON (privacy_.to_json())"
    command.add_argument("model", type=Path, metavar="MODEL", help=text)


def add_forest(command):
    """Add the parameters of a forest."""
    add, default = command.add_argument, LumberjackClassifier().get_params()
    add("--epsilon", required=True, type=float, metavar="E", help="the guarantee, with --delta")
    add("--delta", required=True, type=float, metavar="D", help="far below one over the records")
    trees, depth = default["n_estimators"], default["max_depth"]
    add("--trees", type=positive_integer, default=trees, metavar="K", help=f"trees ({trees})")
    text = f"levels of nodes that may be split ({depth})"
    add("--depth", type=depth_levels, default=depth, metavar="H", help=text)
    text = f"how splits are drawn; random is the paper's way ({default['splitter']})"
    add("--splitter", choices=("guided", "random"), default=default["splitter"], help=text)
    text = f"what a leaf releases ({default['leaf']})"
    add("--leaf", choices=("counts", "majority"), default=default["leaf"], help=text)
    text = f"one budget for the forest, or two ({default['accounting']})"
    add("--accounting", choices=("joint", "split"), default=default["accounting"], help=text)
    text = "records that a node needs to be split (the least that privacy allows)"
    add("--threshold", type=float, metavar="TAU", help=text)
    text = "records that one protected person may hold (1)"
    add("--records-per-unit", type=positive_integer, default=1, metavar="G", help=text)


def add_drop(command):
    """Add the columns to leave out."""
    options = {"nargs": "+", "action": "extend", "default": [], "metavar": "COLUMN"}
    command.add_argument("--drop", **options, help="columns to leave out")


def add_missing(command, default=""):
    """Add what counts as missing."""
    text = f"cells that count as missing, beside empty ones, such as '?'{default}"
    command.add_argument("--missing", nargs="+", action="extend", metavar="TEXT", help=text)


def positive_integer(text):
    """Read a whole number of at least 1."""
    return whole_number(text, 1, None)


def depth_levels(text):
    """Read a depth."""
    return whole_number(text, 1, MAX_DEPTH)


def seed(text):
    """Read a random_state."""
    return whole_number(text, 0, 2**32 - 1)


def whole_number(text, low, high):
    """Read a whole number in a range."""
    value = int(text) if text.isascii() and text.isdigit() else -1
    if value < low or (high is not None and value > high):
        limits = f"of at least {low}" if high is None else f"from {low} to {high}"
        raise argparse.ArgumentTypeError(f"must be a whole number {limits}")
    return value


def fraction(text):
    """Read a number between 0 and 1."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError("must be a number between 0 and 1")
    return value


# Tables -----------------------------------------------------------------------------------------


def load_pandas():
    """Import pandas, which only tables need."""
    try:
        import pandas
    except ImportError:
        raise CommandError(
            "reading tables needs pandas (the extra 'cli'): python -m pip install pandas"
        ) from None
    return pandas


def read_table(path, missing):
    """Read a CSV file as text, cell by cell.

    The type of a column is not guessed here: with a guess, one more record could change how all
    the others are read.

    Parameters
    ----------
    path : Path
    missing : list of str or None
        Cells that are missing, beside empty ones.

    Returns
    -------
    pandas.DataFrame
        Text, NaN where a cell is missing.
    """
    pandas = load_pandas()
    check_readable(path)
    try:
        # The header is read as a row, so that pandas neither renames columns nor takes the first
        # one for an index.
        cells = pandas.read_csv(
            path,
            header=None,
            dtype=str,
            keep_default_na=False,
            na_values=["", *(missing or [])],
        )
    except pandas.errors.EmptyDataError:
        raise CommandError(f"{path} is empty; its first line must name the columns") from None
    except pandas.errors.ParserError:
        raise CommandError(
            f"{path} is not a proper CSV file: a row has more cells than the header, or a quoted "
            "cell does not end"
        ) from None
    except UnicodeDecodeError:
        raise CommandError(f"{path} is not text in UTF-8") from None
    except Exception as error:  # what a damaged file makes each decompressor raise
        raise CommandError(f"{path} cannot be read ({type(error).__name__})") from None
    names = cells.iloc[0]
    if names.isna().any():
        raise CommandError(f"{path} has a column without a name; name it in the first line")
    if names.duplicated().any():
        raise CommandError(f"{path} has two columns named {listed(names[names.duplicated()])}")
    if len(cells) == 1:
        raise CommandError(f"{path} holds no records, only the names of the columns")
    table = cells.iloc[1:].reset_index(drop=True)
    table.columns = names.to_list()
    return table


def check_readable(path):
    """Refuse a path that is no file."""
    if not path.exists():
        raise CommandError(f"{path} does not exist")
    if path.is_dir():
        raise CommandError(f"{path} is a folder, not a file")


def choose_features(table, path, target, drop):
    """Return the names of the columns that are neither target nor dropped."""
    for name in (target, *drop):
        if name not in table.columns:
            raise CommandError(
                f"{name!r} is not a column of {path}; its columns are {listed(table.columns)}"
            )
    if target in drop:
        raise CommandError(f"{target!r} is both the target and dropped")
    return [name for name in table.columns if name != target and name not in drop]


def read_features(table, kinds):
    """Give the cells of a table their types, each cell by itself.

    Parameters
    ----------
    table : pandas.DataFrame
        Text.
    kinds : dict of str to str
        For each column "number", "text", "either" (categories that are numbers, and other cells
        that are then unknown), or "guess".

    Returns
    -------
    pandas.DataFrame
        A "number" column with other text in it stays text, which `Domain` refuses by name.
    """
    pandas = load_pandas()
    return pandas.DataFrame({name: read_column(table[name], kinds[name]) for name in kinds})


def read_column(column, kind):
    """Give the cells of one column their type; see `read_features`."""
    cells = column.to_numpy(dtype=object, na_value=math.nan)
    if kind == "text":
        return cells
    if kind == "either":
        return np.array([number_or_text(cell) for cell in cells], dtype=object)
    try:
        return cells.astype(np.float64)
    except ValueError:
        return cells


def number_or_text(cell):
    """Return a cell as a number if it is one."""
    try:
        return float(cell)
    except ValueError:
        return cell


def kind_of(categories):
    """Return the kind of a column from its categories, None for a numeric one."""
    if categories is None:
        return "number"
    return "text" if all(isinstance(value, str) for value in categories) else "either"


def listed(names):
    """Return names as text."""
    return ", ".join(repr(str(name)) for name in names)


# Domain files -----------------------------------------------------------------------------------


def read_domain(path, table_path, features, target):
    """Read a domain file for the columns of a table.

    Returns
    -------
    declaration : dict
        Parameters bounds, categories and classes of a forest.
    kinds : dict
        Kinds of the features and of the target, for `read_features`.
    """
    entries = read_json(path)
    classes = read_classes(path, entries.pop(target, None), target)
    undeclared = [name for name in features if name not in entries]
    if undeclared:
        raise CommandError(
            f"{path} does not declare {listed(undeclared)}: give each its bounds, as in "
            '"age": [17, 90], or its categories, as in "sex": ["Female", "Male"], or leave it out '
            "with --drop"
        )
    with library_errors():
        bounds, categories = Domain.parse_declaration({name: entries[name] for name in features})
    for name, values in categories.items():
        if any(isinstance(value, bool) for value in values):
            raise CommandError(
                f"{path} declares true or false as a category of {name!r}: write it as text, as "
                "the table spells it"
            )
    declaration = {"bounds": bounds, "categories": categories, "classes": classes}
    kinds = {name: kind_of(categories.get(name)) for name in features}
    return declaration, {**kinds, target: kind_of(classes)}


def read_json(path):
    """Return the object that a JSON file holds."""
    check_readable(path)
    try:
        entries = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=unique_keys)
    except (OSError, ValueError) as error:
        raise CommandError(f"{path} is not a domain file in JSON: {error}") from None
    if not isinstance(entries, dict):
        raise CommandError(f"{path} must hold one object, from column to bounds or categories")
    return entries


def unique_keys(pairs):
    """Return the pairs of a JSON object as a dict, no key twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("it names a column twice")
    return found


def read_classes(path, entry, target):
    """Return the classes that a domain file declares."""
    if isinstance(entry, dict) and set(entry) == {"categories"}:
        entry = entry["categories"]
    if (
        not isinstance(entry, list)
        or len(entry) < 2
        or not (
            all(isinstance(value, str) for value in entry)
            or all(isinstance(value, int) and not isinstance(value, bool) for value in entry)
        )
    ):
        raise CommandError(
            f"{path} must declare the classes of the target {target!r}: a list of two or more "
            f'texts or whole numbers, as in {json.dumps(target)}: ["no", "yes"]'
        )
    return entry


def infer_domain(features, target):
    """Return what `read_domain` returns, to be read from the table."""
    declaration = dict.fromkeys(("bounds", "categories", "classes"), "infer")
    return declaration, {**dict.fromkeys(features, "guess"), target: "text"}


def domain_template(table, features, target):
    """Return a domain file to fill in; it is no JSON before that.

    The type of each column is guessed from the table, nothing else of it is shown.
    """
    lines = []
    for name in features:
        guess = read_column(table[name], "guess")
        blank = "[LOWEST, HIGHEST]" if guess.dtype.kind == "f" else '["CATEGORY", ...]'
        lines.append(f"  {json.dumps(name)}: {blank}")
    lines.append(f'  {json.dumps(target)}: ["CLASS", "CLASS", ...]')
    return "{\n" + ",\n".join(lines) + "\n}"


# Files that are written whole or not at all -----------------------------------------------------


def check_writable(path):
    """Refuse an output that could not be written, before any budget is spent."""
    folder = Path(os.path.realpath(path)).parent
    if path.exists() and not path.is_file():
        raise CommandError(f"{path} exists and is not a file")
    if not folder.is_dir():
        raise CommandError(f"{path} cannot be written: its folder does not exist")
    if not os.access(folder, os.W_OK):
        raise CommandError(f"{path} cannot be written: no permission in its folder")


@contextmanager
def whole_file(path):
    """Open a binary file that takes its place only when the block ends without an error."""
    check_writable(path)
    place = Path(os.path.realpath(path))
    partial = place.with_name(f".{place.name}.{secrets.token_hex(4)}.part")
    try:
        with open(partial, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, place)
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror}") from error
    finally:
        partial.unlink(missing_ok=True)


class ModelUnpickler(pickle.Unpickler):
    """Unpickles arrays and the classes of this package, so that a foreign file runs no code."""

    def find_class(self, module, name):
        if (module, name) in {
            ("numpy", "dtype"),
            ("numpy", "ndarray"),
            ("numpy._core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "scalar"),
            ("numpy._core.numeric", "_frombuffer"),
        }:
            return super().find_class(module, name)
        # A ledger would write files; the command trains without.
        if module.startswith("lumberjack.") and module != "lumberjack.ledger":
            found = super().find_class(module, name)
            if isinstance(found, type) and found.__module__ == module:
                return found
        raise pickle.UnpicklingError(f"{module}.{name} does not belong into a model file")


def write_model(path, model, target, missing):
    """Write a model file."""
    content = {
        "format": MODEL_FORMAT,
        "lumberjack": __version__,
        "model": model,
        "target": target,
        "missing": list(missing or []),
    }
    with whole_file(path) as file:
        pickle.dump(content, file, protocol=5)


def read_model(path):
    """Read a model file."""
    check_readable(path)
    try:
        with open(path, "rb") as file:
            content = ModelUnpickler(file).load()
        written = content["format"], content["lumberjack"]
    except Exception:  # unpickling anything else can raise anything
        raise CommandError(f"{path} is not a model that lumberjack fit wrote") from None
    if written[0] != MODEL_FORMAT:
        raise CommandError(
            f"{path} has the model format {written[0]} of lumberjack {written[1]}; this is "
            f"lumberjack {__version__}, which reads format {MODEL_FORMAT}"
        )
    return content


# lumberjack fit, predict, budget ----------------------------------------------------------------


def run_fit(args):
    """Train a forest on a table, print its guarantee and write it."""
    check_writable(args.out)
    X, y, declaration = read_training(args)
    model = LumberjackClassifier(
        args.trees,
        epsilon=args.epsilon,
        delta=args.delta,
        max_depth=args.depth,
        splitter=args.splitter,
        leaf=args.leaf,
        accounting=args.accounting,
        threshold=args.threshold,
        records_per_unit=args.records_per_unit,
        n_jobs=args.n_jobs,
        random_state=args.random_state,
        **declaration,
    )
    train, test = split_records(len(y), args.test_fraction, args.random_state)
    with library_errors():
        model.fit(X[train], y[train])
        score = score_text(model, X[test], y[test]) if args.test_fraction else None
    write_model(args.out, model, args.target, args.missing)
    if score:
        print(f"test {score} ({TEST_SCORE})")
    print(model.privacy_)
    print(f"model: {args.out}")


def read_training(args):
    """Return features, target and declared domain for `fit` and `demo`."""
    table = read_table(args.table, args.missing)
    features = choose_features(table, args.table, args.target, args.drop)
    if args.domain:
        declaration, kinds = read_domain(args.domain, args.table, features, args.target)
    elif args.infer_domain:
        declaration, kinds = infer_domain(features, args.target)
    else:
        print(domain_template(table, features, args.target))
        raise CommandError(
            "the domain is not declared: replace the capitals in the template on standard output "
            "by what is publicly known, not by what the records show, and give the file as "
            "--domain FILE.json; or take --infer-domain, which is outside the guarantee"
        )
    y = read_column(table[args.target], kinds.pop(args.target))
    return read_features(table, kinds), y, declaration


def split_records(n_records, test_fraction, random_state):
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


def score_text(model, X, y):
    """Return accuracy and, with two classes, the area under the ROC curve, as text."""
    probabilities = model.predict_proba(X)
    codes = model.domain_.encode_classes(y)
    text = f"accuracy {np.mean(probabilities.argmax(axis=1) == codes):.4f}"
    if len(model.classes_) == 2 and len(set(codes)) == 2:
        text += f", AUC {roc_auc_score(codes, probabilities[:, 1]):.4f}"
    return text


def run_predict(args):
    """Write the predictions for a table."""
    if args.out:
        check_writable(args.out)
    content = read_model(args.model)
    model, target = content["model"], content["target"]
    table = read_table(args.table, content["missing"] if args.missing is None else args.missing)
    domain = model.domain_
    absent = [name for name in domain.feature_names if name not in table.columns]
    if absent:
        raise CommandError(f"{args.table} lacks {listed(absent)}, which the model needs")
    kinds = {
        name: kind_of(own)
        for name, own in zip(domain.feature_names, domain.categories, strict=True)
    }
    with library_errors():
        probabilities = model.predict_proba(read_features(table, kinds))
    text = predictions_text(model.classes_, target, probabilities, args.proba)
    if args.out:
        with whole_file(args.out) as file:
            file.write(text.encode("utf-8"))
    else:
        sys.stdout.write(text)


def predictions_text(classes, target, probabilities, proba):
    """Return predictions as CSV, one line for each record under a header."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    predicted = classes[probabilities.argmax(axis=1)].tolist()
    if proba:
        writer.writerow([target, *(f"probability of {label}" for label in classes.tolist())])
        writer.writerows(
            [label, *(f"{value:.6g}" for value in row)]
            for label, row in zip(predicted, probabilities.tolist(), strict=True)
        )
    else:
        writer.writerow([target])
        writer.writerows([label] for label in predicted)
    return text.getvalue()


def run_budget(args):
    """Print the noise that a guarantee needs, and what to expect of it."""
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
    if args.leaf == "counts":
        print(f"leaf noise = {short(noise.sigma_leaves)}: of each class count, in records")
    else:
        print(f"leaf epsilon = {short(noise.epsilon_leaf)}: a record's weight in a leaf's choice")
    if args.records:
        print(expectation(args.records, noise.threshold))


def run_verify(args):
    """Recompute the delta of a model or a report; the exit status is 1 if its claim fails."""
    found = verify_file(args.model)
    print(found)
    return 0 if found.holds else 1


def verify_file(path):
    """Verify the report in a file: JSON, or that of a model, which must be as large as it says."""
    check_readable(path)
    with open(path, "rb") as file:
        is_text = file.read(1) in (b"{", b" ", b"\n", b"\t", b"\r", b"[")
    if is_text:
        return verify_report(path)
    model = read_model(path)["model"]
    try:
        sizes = {"n_features": model.domain_.n_features, "n_classes": len(model.class_prior_)}
        found = verify(model.privacy_, **sizes)
        n_trees = len(model.tree_offsets_) - 1
        told = model.privacy_.calibration.n_estimators
    except (AttributeError, TypeError):
        raise CommandError(f"{path} holds no fitted model with a privacy report") from None
    if n_trees == told:
        return found
    problem = f"the model holds {n_trees} trees, its report tells of {told}"
    return found._replace(holds=False, problems=(*found.problems, problem))


def verify_report(path):
    """Verify a report in JSON."""
    try:
        report = PrivacyReport.from_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CommandError(f"{path}: {error}") from None
    return verify(report)


def expectation(n_records, threshold):
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


def short(value, digits=4):
    """Return a number with four digits, or more if it is a large one.

    >>> short(427.738), short(0.0432891), short(123456.7)
    ('427.7', '0.04329', '123,457')
    """
    return f"{value:,.0f}" if 10**digits <= value < math.inf else f"{value:.{digits}g}"


# lumberjack demo --------------------------------------------------------------------------------


def run_demo(args):
    """Compare a private forest with fully random trees."""
    if args.data:
        compare_on_table(args)
    elif args.target or args.domain or args.drop or args.missing:
        raise CommandError("--target, --domain, --drop and --missing need --data TABLE.csv")
    else:
        compare_on_toy(args)


def demo_forests(n_trees, declaration):
    """Return the two forests that are compared, not yet trained."""
    return [
        LumberjackClassifier(n_trees, **own, **BOTH, **declaration)
        for own in (PRIVATE, FULLY_RANDOM)
    ]


def compare_on_table(args):
    """Compare both methods on a table."""
    if args.out:
        raise CommandError("--out is for the picture of the toy; there is none with --data")
    if not args.target:
        raise CommandError("--data needs --target NAME, the column to predict")
    args.table, args.infer_domain = args.data, args.domain is None
    X, y, declaration = read_training(args)
    train, test = split_records(len(y), DEMO_TEST_FRACTION, None)
    private, fully_random = demo_forests(args.trees, declaration)
    with library_errors():
        private.fit(X[train], y[train])
        with warnings.catch_warnings():
            # The same domain has been warned of already.
            warnings.simplefilter("ignore", PrivacyLeakWarning)
            fully_random.fit(X[train], y[train])
        scores = [score_text(model, X[test], y[test]) for model in (private, fully_random)]
    print(f"On a random fifth of {args.data} ({TEST_SCORE}):")
    print(f"private forest:     {scores[0]}")
    print(f"fully random trees: {scores[1]}")
    print_guarantees(private, fully_random)


def compare_on_toy(args):
    """Compare both methods on the toy, on three ranges of the features."""
    picture = args.out or Path(PICTURE)
    if picture.suffix.lower() not in PICTURE_FORMATS:
        raise CommandError(f"--out must end in {' or '.join(PICTURE_FORMATS)}")
    check_writable(picture)
    figure = load_figure(required=args.out is not None)
    print("Two moons near the origin and a blob in the far corner: 10,000 made-up points.")
    print("Accuracy on 10,000 fresh ones:\n")
    print(f"{'features in':24}{'private forest':>18}{'fully random trees':>22}")
    pairs = []
    for scale in SCALES:
        pairs.append(train_on_toy(args.trees, scale))
        (_, private), (_, fully_random) = pairs[-1]
        print(f"{ranges_text(scale):24}{private:18.3f}{fully_random:22.3f}")
    print_guarantees(*(model for model, _ in pairs[-1]))
    if figure:
        draw_picture(figure, pairs)
        with whole_file(picture) as file:
            figure.savefig(file, format=picture.suffix[1:].lower(), dpi=120)
        print(f"picture: {picture}")
    else:
        print(f"no picture: {NO_MATPLOTLIB}")


def train_on_toy(n_trees, scale):
    """Return both forests, trained on the toy of a scale, with their accuracies on fresh points."""
    X, y, bounds = make_moons_and_blob(scale)
    fresh_X, fresh_y, _ = make_moons_and_blob(scale, random_state=1)
    forests = demo_forests(n_trees, {"bounds": bounds, "classes": CLASSES})
    with library_errors():
        return [(model, model.fit(X, y).score(fresh_X, fresh_y)) for model in forests]


def ranges_text(scale):
    """Return the ranges of the toy's features as text."""
    return f"[0, {5 * scale}] x [0, {4 * scale}]"


def print_guarantees(private, fully_random):
    """Print the guarantees of the two forests."""
    print(f"\nPrivate forest, {private.n_estimators} trees of depth up to {private.max_depth}:")
    print("  " + str(private.privacy_).replace("\n", "\n  "))
    print(f"Fully random trees, {fully_random.n_estimators} of depth {fully_random.max_depth}:")
    print("  " + str(fully_random.privacy_).splitlines()[0].split(",")[0])


def load_figure(required):
    """Return an empty figure, or None without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        if required:
            raise CommandError(f"no picture: {NO_MATPLOTLIB}") from None
        return None
    return Figure(figsize=(11, 6.6), layout="constrained")


def draw_picture(figure, pairs):
    """Draw what both methods predict around the points, a column for each scale."""
    axes = figure.subplots(2, len(pairs))
    names = ("Private forest", "Fully random trees")
    for column, (scale, pair) in enumerate(zip(SCALES, pairs, strict=True)):
        for row, (model, accuracy) in enumerate(pair):
            ax = axes[row, column]
            draw_regions(ax, model, scale, (0, 5, 0, 4))
            if scale > 1:
                corner = ax.inset_axes((0.66, 0.6, 0.32, 0.38))
                draw_regions(
                    corner, model, scale, (5 * scale - 2, 5 * scale, 4 * scale - 2, 4 * scale)
                )
                corner.set(xticks=[], yticks=[], xlabel="far corner")
            ax.set_title(f"features in {ranges_text(scale)}: {accuracy:.1%}", fontsize=10)
            if column == 0:
                ax.set_ylabel(names[row], fontsize=12)


def draw_regions(ax, model, scale, window):
    """Draw predicted classes as areas and some of the points in a window of the plane."""
    left, right, bottom, top = window
    x, y = np.linspace(left, right, 201), np.linspace(bottom, top, 161)
    grid = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    predicted = np.searchsorted(CLASSES, model.predict(grid)).reshape(len(y), len(x))
    colours = np.array([[int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)] for c in COLOURS])
    pale = 0.65 + 0.35 * colours
    ax.imshow(pale[predicted], extent=window, origin="lower", aspect="auto")
    points, labels, _ = make_moons_and_blob(scale)
    for label, colour in zip(CLASSES, COLOURS, strict=True):
        own = points[labels == label][::4]
        ax.scatter(own[:, 0], own[:, 1], s=2, color=colour, linewidths=0)
    ax.set(xlim=(left, right), ylim=(bottom, top))
