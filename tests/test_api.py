"""The public names, those in ``__all__``: documented in numpydoc's form, with an example."""

import importlib
import importlib.metadata
import inspect
import re
from pathlib import Path

import pytest

import lumberjack

MODULES = (
    "lumberjack",
    "lumberjack.accounting",
    "lumberjack.datasets",
    "lumberjack.domain",
    "lumberjack.export",
    "lumberjack.hierarchy",
    "lumberjack.inspection",
    "lumberjack.ledger",
    "lumberjack.noise",
    "lumberjack.privacy",
)


def public_objects():
    """Public classes and functions by name, each under its shortest one."""
    found = {}
    for name in MODULES:
        module = importlib.import_module(name)
        for own in getattr(module, "__all__", ()):
            value = getattr(module, own)
            if callable(value) and value not in found.values():
                found[f"{name}.{own}"] = value
    return found


def public_methods(cls):
    """Methods of a class that are defined in the package, by name."""
    return {
        name: value
        for name, value in inspect.getmembers(cls, callable)
        if not name.startswith("_") and getattr(value, "__module__", "").startswith("lumberjack")
    }


OBJECTS = public_objects()
CLASSES = {name: own for name, own in OBJECTS.items() if inspect.isclass(own)}
METHODS = {
    f"{name}.{method}": value
    for name, own in CLASSES.items()
    for method, value in public_methods(own).items()
}


def section(text, title):
    """The lines of a section of a docstring, or None."""
    found = re.search(rf"^{title}\n-{{{len(title)}}}\n(.*?)(?=\n\n?\S+( \S+)?\n-{{3,}}\n|\Z)", text,
                      re.DOTALL | re.MULTILINE)  # fmt: skip
    return found and found[1].splitlines()


def documented(text, title):
    """Names that a section documents, in order."""
    names = []
    for line in section(text, title) or ():
        if line[:1].strip():
            names += [name.strip().lstrip("*") for name in line.partition(" : ")[0].split(",")]
    return names


def parameters_of(value):
    """Names of the parameters of a function or class, in order."""
    try:
        signature = inspect.signature(value)
    except ValueError:  # built in
        return []
    return [name for name in signature.parameters if name not in ("self", "cls")]


def is_error(value):
    """Whether it is an exception or a warning, which is raised and not called."""
    return inspect.isclass(value) and issubclass(value, BaseException)


def is_record(value):
    """Whether it is a named tuple or a dataclass, which may document its fields as attributes."""
    return inspect.isclass(value) and (
        hasattr(value, "_fields") or hasattr(value, "__dataclass_fields__")
    )


@pytest.mark.parametrize("name", OBJECTS)
def test_public_objects_have_docstrings_with_an_example(name):
    text = inspect.cleandoc(OBJECTS[name].__doc__ or "")
    assert re.match(r"\S.*[.:]", text), "no first sentence"
    if not is_error(OBJECTS[name]):
        example = section(text, "Examples")
        assert example and any(line.startswith(">>> ") for line in example), "no example"


@pytest.mark.parametrize("name", [*OBJECTS, *METHODS])
def test_parameters_are_documented_in_order(name):
    value = {**OBJECTS, **METHODS}[name]
    if is_error(value):
        return
    text = inspect.cleandoc(value.__doc__ or "")
    assert text, "no docstring"
    found = documented(text, "Parameters")
    if is_record(value) and not found:
        found = documented(text, "Attributes")
        assert {*parameters_of(value)} <= {*found}
        return
    assert found == parameters_of(value)


@pytest.mark.parametrize("name", MODULES)
def test_public_modules_say_what_they_offer(name):
    module = importlib.import_module(name)
    assert inspect.cleandoc(module.__doc__ or "").strip()
    assert len(set(module.__all__)) == len(module.__all__) > 0
    assert all(hasattr(module, own) for own in module.__all__)


def test_the_version_is_that_of_the_package():
    assert importlib.metadata.version("lumberjack-dp") == lumberjack.__version__


def test_extras_that_messages_name_are_there():
    extras = importlib.metadata.metadata("lumberjack-dp").get_all("Provides-Extra")
    folder = Path(lumberjack.__file__).parent
    text = "".join(path.read_text(encoding="utf-8") for path in folder.glob("*.py"))
    named = set(re.findall(r"(?:extra ['`]+|lumberjack-dp\[)(\w+)", text))
    assert named and named <= {*extras}


def test_the_parser_of_docstrings():
    text = inspect.cleandoc(
        """Do it.

        Parameters
        ----------
        a, b : int
            Numbers.

            More of them.
        *rest
            Others.

        Returns
        -------
        int

        Examples
        --------
        >>> 1
        1
        """
    )
    assert documented(text, "Parameters") == ["a", "b", "rest"]
    assert section(text, "Returns") == ["int"]
    assert section(text, "Examples") == [">>> 1", "1"]
    assert section(text, "Notes") is None
