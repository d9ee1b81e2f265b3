"""The arguments of the command ``lumberjack``, and what its ``--help`` teaches."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any, NoReturn

from lumberjack import LumberjackClassifier, __version__
from lumberjack.demo import PICTURE
from lumberjack.files import CommandError
from lumberjack.parameters import MAX_DEPTH

HELP = """\
a first session:
  lumberjack demo                                    see what it does, on made-up points
  lumberjack budget --epsilon 1 --delta 1e-6         see what a guarantee costs in noise
  lumberjack fit people.csv --target income --epsilon 1 --delta 1e-6 \\
      --domain people.json --out model.json          train; without --domain: a template for it
  lumberjack inspect model.json                      look at what was learned
  lumberjack predict model.json others.csv           predict
  lumberjack verify model.json                       check its claim

Epsilon bounds how much one person's record can change the odds of any outcome: at most by the
factor e^epsilon, except with probability delta. 1 is strong, 10 is weak; delta should be far below
one over the number of records. `lumberjack COMMAND --help` has examples for each command.
"""

HELP_DEMO = """\
examples:
  lumberjack demo
  lumberjack demo --out toy.svg --trees 50
  lumberjack demo --data people.csv --target income --domain people.json

Both forests have the settings of the paper's first figure, not the defaults of fit.
"""

HELP_FIT = """\
examples:
  lumberjack fit people.csv --target income --domain people.json --epsilon 1 --delta 1e-6 \\
      --out model.json
  lumberjack fit people.csv --target income --domain people.json --epsilon 1 --delta 1e-6 \\
      --out model.json --ledger ledger.json
  lumberjack fit rides.csv --target minutes --domain rides.json --epsilon 1 --delta 1e-6 \\
      --out rides-model.json

The domain file says what is publicly known of each column and of the target; reading that from the
records would leak. Without --domain, fit prints a template to fill in.

  {"age": [17, 90], "sex": ["Female", "Male"], "income": ["<=50K", ">50K"]}

Two numbers are bounds, texts are categories; {"categories": [1, 2, 3]} makes categories of numbers.
The target declares its classes, {"classes": [0, 1]} if they are two numbers, and for a regression
its bounds, as in {"minutes": {"bounds": [0, 90]}}. Values outside are clipped or routed, never an
error. What Domain.to_dict returns is a domain file, too.

One person with several records: give --records-per-unit. Several fits on the same people: give them
the same --ledger (`lumberjack ledger --help`).
"""

HELP_PREDICT = """\
examples:
  lumberjack predict model.json others.csv
  lumberjack predict model.json others.csv --proba --out predictions.csv

Columns are found by name; others are ignored. Values outside the declared bounds, unknown
categories and missing values are no error.
"""

HELP_BUDGET = """\
examples:
  lumberjack budget --epsilon 1 --delta 1e-6
  lumberjack budget --epsilon 0.5 --delta 1e-6 --trees 10 --depth 15 --records 2000

No data are read. A node is split where about tau records are; if tau is near the number of records,
take fewer trees, a smaller depth or a larger epsilon. Depths of the form 2^j - 1 waste nothing.
"""

HELP_LEDGER = """\
examples:
  lumberjack ledger ledger.json --epsilon 4 --delta 1e-6    make it
  lumberjack ledger ledger.json                             see what is spent
  lumberjack ledger ledger.json --share 8                   what each of 8 more fits can have

Every fit that is given the ledger is charged to it before it reads a record, and refused if it
would overdraw. Whatever is tried, all models trained on these people together are then as private
as the ledger says. Keep one file for one group of people; a copy spends the budget twice.
"""

HELP_INSPECT = """\
examples:
  lumberjack inspect model.json
  lumberjack inspect model.json --tree 3 --max-depth 5
  lumberjack inspect model.json --figure model.png

All of it is released already: looking costs no privacy. Importances come from the noisy leaves;
with few records or a small epsilon they are mostly noise.
"""

HELP_EXPORT = """\
examples:
  lumberjack export model.json --onnx model.onnx
  lumberjack export model.json --report report.json

An ONNX graph predicts without Python (extra 'onnx'). The report is the evidence for the guarantee,
which `lumberjack verify` recomputes. The model file itself is JSON and holds no code.
"""

HELP_VERIFY = """\
examples:
  lumberjack verify model.json
  lumberjack verify report.json

Delta is computed anew from the noise of each mechanism. The exit status is 0 if the claim follows
from it, else 1. Whether the fit did what its report says cannot be checked from outside.
"""


class Parser(argparse.ArgumentParser):
    """A parser whose errors take one line."""

    def error(self, message: str) -> NoReturn:
        raise CommandError(f"{message} (see {self.prog} --help)")


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = Parser(
        prog="lumberjack",
        description="Differentially private random forests.",
        epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"lumberjack {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    add_demo(commands)
    add_fit(commands)
    add_predict(commands)
    add_budget(commands)
    add_ledger(commands)
    add_inspect(commands)
    add_export(commands)
    add_verify(commands)
    return parser


def add_command(commands: Any, name: str, help: str, examples: str) -> argparse.ArgumentParser:
    """Add a subcommand."""
    command = commands.add_parser(
        name,
        help=help,
        description=help[0].upper() + help[1:] + ".",
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.set_defaults(command=name)
    return command


def add_demo(commands: Any) -> None:
    """Add ``lumberjack demo``."""
    text = "compare a private forest with fully random trees on a toy"
    command = add_command(commands, "demo", text, HELP_DEMO)
    add = command.add_argument
    add("--trees", type=positive_integer, default=25, metavar="K", help="trees (25)")
    add("--out", type=Path, metavar="FILE", help=f"where the picture goes ({PICTURE})")
    add("--data", type=Path, metavar="TABLE", help="compare on this table, not on the toy")
    add("--target", metavar="NAME", help="column to predict, with --data")
    text = "declared domain, with --data; read from the table if not given"
    add("--domain", type=Path, metavar="FILE.json", help=text)
    add_drop(command)
    add_missing(command)


def add_fit(commands: Any) -> None:
    """Add ``lumberjack fit``."""
    text = "train a private forest on a table"
    command = add_command(commands, "fit", text, HELP_FIT)
    add = command.add_argument
    add("table", type=Path, metavar="TABLE", help="CSV file, also .csv.gz, or .parquet")
    add("--target", required=True, metavar="NAME", help="column to predict")
    add("--out", required=True, type=Path, metavar="MODEL", help="where the model goes (JSON)")
    add_forest(command)
    either = command.add_mutually_exclusive_group().add_argument
    text = "public bounds, categories and classes; see below"
    either("--domain", type=Path, metavar="FILE.json", help=text)
    text = "read them from the table, outside the guarantee"
    either("--infer-domain", action="store_true", help=text)
    add_drop(command)
    add_missing(command)
    add("--ledger", type=Path, metavar="FILE.json", help="charge the fit to this ledger")
    text = "leave out this share of the records and print the score on them"
    add("--test-fraction", type=fraction, metavar="F", help=text)
    text = "threads (all cores); they do not change the result"
    add("--n-jobs", type=int, default=-1, metavar="N", help=text)
    text = "make the result reproducible; voids the guarantee against whoever knows it"
    add("--random-state", type=seed, metavar="S", help=text)
    add_verbose(command)


def add_predict(commands: Any) -> None:
    """Add ``lumberjack predict``."""
    text = "predict with a trained forest"
    command = add_command(commands, "predict", text, HELP_PREDICT)
    add = command.add_argument
    add("model", type=Path, metavar="MODEL", help="file that fit wrote")
    add("table", type=Path, metavar="TABLE", help="CSV file, also .csv.gz, or .parquet")
    text = "where the predictions go, .csv or .parquet (standard output)"
    add("--out", type=Path, metavar="FILE", help=text)
    add("--proba", action="store_true", help="add the probability of each class")
    add_missing(command, " (as given to fit)")
    add_verbose(command)


def add_budget(commands: Any) -> None:
    """Add ``lumberjack budget``."""
    text = "show the noise that a guarantee needs"
    command = add_command(commands, "budget", text, HELP_BUDGET)
    add_forest(command)
    text = "a public estimate of the number of records: tells what to expect"
    command.add_argument("--records", type=positive_integer, metavar="N", help=text)


def add_ledger(commands: Any) -> None:
    """Add ``lumberjack ledger``."""
    text = "make or show a ledger, which bounds what several fits reveal together"
    command = add_command(commands, "ledger", text, HELP_LEDGER)
    add = command.add_argument
    add("ledger", type=Path, metavar="FILE.json", help="made if it is not there")
    add("--epsilon", type=float, metavar="E", help="make it: the guarantee of all fits together")
    add("--delta", type=float, metavar="D", help="make it: far below one over the records")
    text = "make it: records that one protected person may hold (1)"
    add("--records-per-unit", type=positive_integer, metavar="G", help=text)
    text = "make it: share of the budget for fits with --leaf majority (0)"
    add("--majority-share", type=float, metavar="F", help=text)
    text = "print the epsilon and delta that each of N more equal fits can have"
    add("--share", type=positive_integer, metavar="N", help=text)


def add_inspect(commands: Any) -> None:
    """Add ``lumberjack inspect``."""
    text = "look at a model: domain, guarantee, importances and trees"
    command = add_command(commands, "inspect", text, HELP_INSPECT)
    add = command.add_argument
    add("model", type=Path, metavar="MODEL", help="file that fit wrote")
    add("--tree", type=index, default=0, metavar="T", help="tree to show, from 0 (0)")
    text = "levels of it to show (3)"
    add("--max-depth", type=index, default=3, metavar="D", help=text)
    text = "draw budget, importances and the top of the tree (.png, .pdf or .svg)"
    add("--figure", type=Path, metavar="FILE", help=text)


def add_export(commands: Any) -> None:
    """Add ``lumberjack export``."""
    text = "write a model as an ONNX graph, or its privacy report"
    command = add_command(commands, "export", text, HELP_EXPORT)
    add = command.add_argument
    add("model", type=Path, metavar="MODEL", help="file that fit wrote")
    add("--onnx", type=Path, metavar="FILE", help="where the graph goes")
    add("--report", type=Path, metavar="FILE.json", help="where the privacy report goes")
    text = "export a graph although its domain was read from the data"
    add("--allow-inferred", action="store_true", help=text)


def add_verify(commands: Any) -> None:
    """Add ``lumberjack verify``."""
    text = "check the guarantee that a model or a report claims"
    command = add_command(commands, "verify", text, HELP_VERIFY)
    text = "file that fit wrote, or a privacy report in JSON"
    command.add_argument("model", type=Path, metavar="MODEL", help=text)


def add_forest(command: argparse.ArgumentParser) -> None:
    """Add the parameters of a forest."""
    add, default = command.add_argument, LumberjackClassifier().get_params()
    add("--epsilon", required=True, type=float, metavar="E", help="the guarantee, with --delta")
    add("--delta", required=True, type=float, metavar="D", help="far below one over the records")
    text = "for a target that is a number (a domain file that gives its bounds says so, too)"
    add("--regression", action="store_true", help=text)
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


def add_drop(command: argparse.ArgumentParser) -> None:
    """Add the columns to leave out."""
    options: Any = {"nargs": "+", "action": "extend", "default": [], "metavar": "COLUMN"}
    command.add_argument("--drop", **options, help="columns to leave out")


def add_missing(command: argparse.ArgumentParser, default: str = "") -> None:
    """Add what counts as missing."""
    text = f"cells that count as missing, beside empty ones, such as '?'{default}"
    command.add_argument("--missing", nargs="+", action="extend", metavar="TEXT", help=text)


def add_verbose(command: argparse.ArgumentParser) -> None:
    """Add the report on what is going on."""
    text = "tell on standard error what is going on (a terminal is told anyway)"
    command.add_argument("--verbose", action="store_true", help=text)


def positive_integer(text: str) -> int:
    """Read a whole number of at least 1."""
    return whole_number(text, 1, None)


def index(text: str) -> int:
    """Read a whole number of at least 0."""
    return whole_number(text, 0, None)


def depth_levels(text: str) -> int:
    """Read a depth."""
    return whole_number(text, 1, MAX_DEPTH)


def seed(text: str) -> int:
    """Read a random_state."""
    return whole_number(text, 0, 2**32 - 1)


def whole_number(text: str, low: int, high: int | None) -> int:
    """Read a whole number in a range."""
    value = int(text) if text.isascii() and text.isdigit() else -1
    if value < low or (high is not None and value > high):
        limits = f"of at least {low}" if high is None else f"from {low} to {high}"
        raise argparse.ArgumentTypeError(f"must be a whole number {limits}")
    return value


def fraction(text: str) -> float:
    """Read a number between 0 and 1."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError("must be a number between 0 and 1")
    return value
