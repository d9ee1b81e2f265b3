"""Files of the command: tables, domain files, models, ledgers.

Every cell of a table is read by itself, and a file is written whole or not at all. Errors name
files and columns, never a value, a row or a count.
"""

from __future__ import annotations

import csv
import importlib
import io
import json
import math
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np

from lumberjack import Domain, PrivacyLedger, export
from lumberjack.domain import FORMAT_VERSION, unique_keys

if TYPE_CHECKING:
    import pandas as pd

PARQUET = (".parquet", ".pq")


class CommandError(Exception):
    """An expected error, shown in one line."""


def listed(names: Iterable[object]) -> str:
    """Return names as text."""
    return ", ".join(repr(str(name)) for name in names)


# Tables -----------------------------------------------------------------------------------------


def load_optional(name: str, extra: str, need: str) -> Any:
    """Import an optional library, or say how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        package = name.partition(".")[0]
        raise CommandError(
            f"{need} needs {package} (the extra {extra!r}): python -m pip install {package}"
        ) from None


def load_pandas() -> ModuleType:
    """Import pandas, which only tables need."""
    return load_optional("pandas", "cli", "reading tables")


def is_parquet(path: Path) -> bool:
    """Tell a Parquet file from a CSV file by its name."""
    return path.suffix.lower() in PARQUET


def read_table(path: Path, missing: Iterable[str] | None) -> pd.DataFrame:
    """Read a table.

    Parameters
    ----------
    path : Path
        A Parquet file, by its suffix, or a CSV file.
    missing : iterable of str or None
        Cells that are missing, beside empty ones.

    Returns
    -------
    pandas.DataFrame
        Missing cells are NaN or NA. Of a CSV file all cells are text: their type is not guessed
        here, because one more record could then change how all the others are read. Those of a
        Parquet file have the types that it declares.
    """
    check_readable(path)
    marks = list(missing or [])
    table = read_parquet(path, marks) if is_parquet(path) else read_csv(path, marks)
    if table.columns.duplicated().any():
        repeated = table.columns[table.columns.duplicated()]
        raise CommandError(f"{path} has two columns named {listed(repeated)}")
    if len(table) == 0:
        raise CommandError(f"{path} holds no records, only the names of the columns")
    return table


def read_csv(path: Path, marks: list[str]) -> pd.DataFrame:
    """Read a CSV file as text; see `read_table`."""
    pandas = load_pandas()
    try:
        # The header is read as a row, so that pandas neither renames columns nor takes the first
        # one for an index.
        cells = pandas.read_csv(
            path, header=None, dtype=str, keep_default_na=False, na_values=["", *marks]
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
    table = cells.iloc[1:].reset_index(drop=True)
    table.columns = names.to_list()
    return table


def read_parquet(path: Path, marks: list[str]) -> pd.DataFrame:
    """Read a Parquet file; see `read_table`.

    The metadata that pandas leaves in such files is ignored: it would make an index of a column.
    """
    load_pandas()
    parquet = load_optional("pyarrow.parquet", "parquet", "reading Parquet files")
    try:
        with open(path, "rb") as file:
            table = parquet.read_table(file).to_pandas(ignore_metadata=True)
    except Exception as error:  # damaged files, and types that pandas does not have
        raise CommandError(f"{path} cannot be read as Parquet ({type(error).__name__})") from None
    numbers = [value for value in map(number_or_text, marks) if isinstance(value, float)]
    for place in range(table.shape[1]):
        column = table.iloc[:, place]
        if column.dtype.kind in "mM":
            continue  # dates, which `Domain` refuses
        found = column.isin(["", *marks, *numbers])
        if found.any():
            table.isetitem(place, column.astype(object).mask(found))
    return table


def check_readable(path: Path) -> None:
    """Refuse a path that is no file."""
    if not path.exists():
        raise CommandError(f"{path} does not exist")
    if path.is_dir():
        raise CommandError(f"{path} is a folder, not a file")


def choose_features(table: pd.DataFrame, path: Path, target: str, drop: list[str]) -> list[str]:
    """Return the names of the columns that are neither target nor dropped."""
    for name in (target, *drop):
        if name not in table.columns:
            raise CommandError(
                f"{name!r} is not a column of {path}; its columns are {listed(table.columns)}"
            )
    if target in drop:
        raise CommandError(f"{target!r} is both the target and dropped")
    features = [name for name in table.columns if name != target and name not in drop]
    if not features:
        raise CommandError(f"no column of {path} is left to predict {target!r} from")
    return features


def read_features(table: pd.DataFrame, kinds: Mapping[str, str]) -> pd.DataFrame:
    """Give the cells of a table their types, each cell by itself.

    Parameters
    ----------
    table : pandas.DataFrame
        As from `read_table`.
    kinds : dict of str to str
        For each column "number", "text", "either" (categories that are numbers, and other cells
        that are then unknown), "label" (classes to be read from the data) or "guess".

    Returns
    -------
    pandas.DataFrame
        A "number" column with other text in it stays text, which `Domain` refuses by name.
    """
    pandas = load_pandas()
    return pandas.DataFrame({name: read_column(table[name], kinds[name]) for name in kinds})


def read_column(column: pd.Series, kind: str) -> np.ndarray:
    """Give the cells of one column their type; see `read_features`."""
    if load_pandas().api.types.is_numeric_dtype(column.dtype):  # booleans, too
        if kind == "text":
            raise CommandError(
                f"the column {str(column.name)!r} holds numbers, but what is declared for it is "
                'text: declare numbers, as in {"categories": [0, 1]}'
            )
        return column.to_numpy(dtype=np.float64, na_value=math.nan)
    cells = column.to_numpy(dtype=object, na_value=math.nan)
    if kind in ("text", "label"):
        return cells
    if kind == "either":
        return np.array([number_or_text(cell) for cell in cells], dtype=object)
    try:
        return cells.astype(np.float64)
    except (TypeError, ValueError):
        return cells


def number_or_text(cell: Any) -> Any:
    """Return a cell as a number if it is one."""
    try:
        return float(cell)
    except (TypeError, ValueError):
        return cell


def kind_of(categories: Iterable[object] | None) -> str:
    """Return the kind of a column from its categories, None for a numeric one."""
    if categories is None:
        return "number"
    return "text" if all(isinstance(value, str) for value in categories) else "either"


# Domain files -----------------------------------------------------------------------------------


class Declaration(NamedTuple):
    """What a domain file declares for a table, or what is to be read from the table itself.

    Attributes
    ----------
    parameters : dict
        Parameters `bounds`, `categories` and `classes` or `target_bounds` of a forest.
    kinds : dict
        Kinds of the features, for `read_features`.
    target_kind : str
        That of the target.
    regression : bool
        Whether the target is a number.
    """

    parameters: dict[str, Any]
    kinds: dict[str, str]
    target_kind: str
    regression: bool


def read_domain(
    path: Path,
    table_path: Path,
    columns: Iterable[str],
    features: list[str],
    target: str,
    regression: bool = False,
) -> Declaration:
    """Read a domain file for the columns of a table.

    Parameters
    ----------
    path, table_path : Path
    columns : iterable of str
        All columns of the table.
    features : list of str
        Those of them that are used.
    target : str
    regression : bool, default=False
        Two numbers for the target are its bounds; otherwise they must say what they are.

    Returns
    -------
    Declaration
    """
    entries = read_declarations(path, target)
    strange = [name for name in entries if name not in {*columns, target}]
    if strange:
        raise CommandError(
            f"{path} declares {listed(strange)}, which {table_path} does not hold: correct the "
            "name, or take the entry out"
        )
    classes, target_bounds = read_target(path, entries.pop(target, None), target, regression)
    undeclared = [name for name in features if name not in entries]
    if undeclared:
        raise CommandError(
            f"{path} does not declare {listed(undeclared)}: give each its bounds, as in "
            '"age": [17, 90], or its categories, as in "sex": ["Female", "Male"], or leave it out '
            "with --drop"
        )
    try:
        bounds, categories = Domain.parse_declaration({name: entries[name] for name in features})
    except (ValueError, TypeError) as error:
        raise CommandError(f"{path}: {error}") from None
    for name, values in categories.items():
        if any(isinstance(value, bool) for value in values):
            raise CommandError(
                f"{path} declares true or false as a category of {name!r}: write it as text, as "
                "the table spells it, or for a column of booleans as 0 and 1"
            )
    parameters = {"bounds": bounds, "categories": categories}
    parameters |= {"target_bounds": target_bounds} if classes is None else {"classes": classes}
    kinds = {name: kind_of(categories.get(name)) for name in features}
    return Declaration(parameters, kinds, kind_of(classes), classes is None)


def read_declarations(path: Path, target: str) -> dict[str, Any]:
    """Return the entries of a domain file, that of the target among them.

    A file that `Domain.to_dict` made is brought into the form of one that is written by hand.
    """
    entries = read_json(path, "a domain file")
    if not isinstance(entries.get("version"), int):
        return entries
    if entries["version"] != FORMAT_VERSION:
        raise CommandError(
            f"{path} has the version {entries['version']} of a domain file; this lumberjack reads "
            f"version {FORMAT_VERSION}"
        )
    features, inferred = entries.get("features"), entries.get("inferred")
    if inferred:
        raise CommandError(
            f"{path} says that it was read from records ({listed(inferred)}), which is no public "
            "knowledge: declare it, or take --infer-domain"
        )
    if not isinstance(features, dict):
        raise CommandError(f'{path} has a version, but no columns as its entry "features"')
    classes = entries.get("classes")
    told = {"classes": classes} if classes else {"bounds": entries.get("target_bounds")}
    return {**features, target: told}


def read_json(path: Path, what: str) -> dict[str, Any]:
    """Return the object that a JSON file holds."""
    check_readable(path)
    try:
        text = path.read_text(encoding="utf-8")
        entries = json.loads(text, object_pairs_hook=unique_keys("it gives a name twice"))
    except (OSError, ValueError, RecursionError) as error:
        raise CommandError(f"{path} is not {what} in JSON: {error}") from None
    if not isinstance(entries, dict):
        raise CommandError(f"{path} is not {what}: it must hold one object, {{...}}")
    return entries


def read_target(
    path: Path, entry: Any, target: str, regression: bool
) -> tuple[list[Any] | None, tuple[float, float] | None]:
    """Return the classes or else the bounds that a domain file declares for the target."""
    kind, values = None, entry
    if isinstance(entry, dict) and len(entry) == 1:
        ((kind, values),) = entry.items()
    if not isinstance(values, list):
        values = []
    is_number = [isinstance(own, int | float) and not isinstance(own, bool) for own in values]
    is_whole = all(is_number) and not any(isinstance(own, float) for own in values)
    is_pair = len(values) == 2 and all(is_number)
    quoted = json.dumps(target)
    if kind is None and is_pair and not regression:
        raise CommandError(
            f"{path} declares two numbers for the target {target!r}, bounds or classes: write "
            f'{quoted}: {{"bounds": {json.dumps(values)}}} for a regression, or {quoted}: '
            f'{{"classes": {json.dumps(values)}}}'
        )
    if is_pair and (kind == "bounds" or (kind is None and regression)):
        return None, (float(values[0]), float(values[1]))
    is_list = len(values) > 1 and (is_whole or all(isinstance(own, str) for own in values))
    if is_list and kind in (None, "classes", "categories") and not regression:
        return values, None
    if regression:
        raise CommandError(
            f"{path} must declare the bounds of the target {target!r}, as in "
            f"{quoted}: [0, 100], because of --regression"
        )
    raise CommandError(
        f"{path} must declare the target {target!r}: its classes, a list of two or more texts or "
        f'whole numbers, as in {quoted}: ["no", "yes"], or for a regression its bounds, as in '
        f'{quoted}: {{"bounds": [0, 100]}}'
    )


def infer_domain(features: list[str], regression: bool) -> Declaration:
    """Return what `read_domain` returns, to be read from the table."""
    names = ("bounds", "categories", "target_bounds" if regression else "classes")
    kinds = dict.fromkeys(features, "guess")
    return Declaration(
        dict.fromkeys(names, "infer"), kinds, "number" if regression else "label", regression
    )


def domain_template(table: pd.DataFrame, features: list[str], target: str, regression: bool) -> str:
    """Return a domain file to fill in; it is no JSON before that.

    The type of each column is guessed from the table, nothing else of it is shown.
    """
    lines = []
    for name in features:
        guess = read_column(table[name], "guess")
        blank = "[LOWEST, HIGHEST]" if guess.dtype.kind == "f" else '["CATEGORY", ...]'
        lines.append(f"  {json.dumps(name)}: {blank}")
    blank = '{"bounds": [LOWEST, HIGHEST]}' if regression else '["CLASS", "CLASS", ...]'
    lines.append(f"  {json.dumps(target)}: {blank}")
    return "{\n" + ",\n".join(lines) + "\n}"


# Files that are written whole or not at all -----------------------------------------------------


def check_writable(path: Path) -> None:
    """Refuse an output that could not be written, before any budget is spent."""
    folder = Path(os.path.realpath(path)).parent
    if path.exists() and not path.is_file():
        raise CommandError(f"{path} exists and is not a file")
    if not folder.is_dir():
        raise CommandError(f"{path} cannot be written: its folder does not exist")
    if not os.access(folder, os.W_OK):
        raise CommandError(f"{path} cannot be written: no permission in its folder")


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
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


def csv_text(columns: Mapping[str, list[Any]]) -> str:
    """Return columns as CSV, one line for each record under a header; numbers get six digits."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        writer.writerow([f"{own:.6g}" if isinstance(own, float) else own for own in row])
    return text.getvalue()


def write_columns(path: Path, columns: Mapping[str, list[Any]]) -> None:
    """Write columns as CSV, or as Parquet if the name says so."""
    if is_parquet(path):
        pyarrow = load_optional("pyarrow", "parquet", "writing Parquet files")
        parquet = load_optional("pyarrow.parquet", "parquet", "writing Parquet files")
        with whole_file(path) as file:
            parquet.write_table(pyarrow.table(dict(columns)), file)
    else:
        text = csv_text(columns)
        with whole_file(path) as file:
            file.write(text.encode("utf-8"))


# Models and ledgers -----------------------------------------------------------------------------


class ModelFile(NamedTuple):
    """What a model file holds.

    Attributes
    ----------
    model : LumberjackClassifier or LumberjackRegressor
        Fitted.
    target : str
        Name of the column that it predicts.
    missing : list of str
        Cells that counted as missing when it was trained.
    """

    model: Any
    target: str
    missing: list[str]


def write_model(path: Path, model: Any, target: str, missing: Iterable[str] | None) -> None:
    """Write a model file, which is that of `export.to_json`.

    A domain that was read from the data has been warned of, and the file tells it.
    """
    metadata = {"target": target, "missing": list(missing or [])}
    text = export.to_json(model, metadata=metadata, allow_inferred=True)
    with whole_file(path) as file:
        file.write(text.encode("utf-8"))


def read_model(path: Path) -> ModelFile:
    """Read a model file; nothing that it might hold is run."""
    check_readable(path)
    try:
        text = path.read_bytes()
        model, metadata = export.from_json(text, return_metadata=True)
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise CommandError(f"{path}: {error}") from None
    target, missing = metadata.get("target", "prediction"), metadata.get("missing", [])
    if not isinstance(target, str) or not isinstance(missing, list):
        raise CommandError(f"{path} is not a model that lumberjack fit wrote")
    return ModelFile(model, target, [str(mark) for mark in missing])


def open_ledger(path: Path, **terms: Any) -> PrivacyLedger:
    """Open a ledger file, or make one if its terms are given and it is not there."""
    if not terms and not path.exists():
        raise CommandError(
            f"{path} does not exist: lumberjack ledger {path} --epsilon E --delta D makes it"
        )
    if terms:
        check_writable(path)
    try:
        return PrivacyLedger(**terms, path=path) if terms else PrivacyLedger.open(path)
    except (ValueError, TypeError, NotImplementedError) as error:
        raise CommandError(error) from None
    except OSError as error:
        raise CommandError(f"{path} cannot be opened: {error.strerror or error}") from None
