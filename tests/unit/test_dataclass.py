"""`millstream.dataclass` means what the standard library's decorator means."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import inspect
import operator
import pickle
import pkgutil
from dataclasses import FrozenInstanceError, field, make_dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import pytest

import millstream
from millstream import dataclass as ours

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")
DECORATORS = {"standard": dataclasses.dataclass, "ours": ours.dataclass}


Shapes = dict[str, tuple[Any, list[dict[str, Any]]]]


def _usual(dataclass: Callable[..., Any]) -> Shapes:
    """Those that most modules have."""

    @dataclass
    class Plain:
        a: int
        b: str = "b"

    @dataclass(slots=True)
    class Slotted:
        kind: ClassVar[str] = "kind"
        a: int
        b: list[int] = field(default_factory=list)
        c: int = field(default=3, init=False)
        d: list[int] = field(default_factory=list, init=False, repr=False)

    @dataclass(frozen=True, slots=True)
    class Frozen:
        a: int
        b: tuple[int, ...] = ()
        note: str = field(default="", compare=False)

    @dataclass(frozen=True, slots=True, kw_only=True)
    class ByName:
        a: int = 1
        b: int

    @dataclass(frozen=True, slots=True, order=True)
    class Ordered:
        a: int
        b: int = 0

    @dataclass(frozen=True, slots=True)
    class Extended(Frozen):
        c: int = 5

    return {
        "plain": (Plain, [{"a": 1}, {"a": 1, "b": "c"}]),
        "slotted": (Slotted, [{"a": 1}, {"a": 1, "b": [2]}]),
        "frozen": (Frozen, [{"a": 1}, {"a": 1, "note": "n"}, {"a": 2, "b": (1,)}]),
        "by name": (ByName, [{"b": 1}, {"b": 1, "a": 2}]),
        "ordered": (Ordered, [{"a": 1}, {"a": 1, "b": 2}, {"a": 0, "b": 9}]),
        "extended": (Extended, [{"a": 1}, {"a": 1, "c": 6}]),
    }


def _unusual(dataclass: Callable[..., Any]) -> Shapes:
    """Those that differ in what is compared, shown or checked."""

    @dataclass(frozen=True, slots=True)
    class Single:
        a: float

    @dataclass(frozen=True, slots=True)
    class Nothing:
        pass

    @dataclass(slots=True, eq=False)
    class Identical:
        a: int

    @dataclass(frozen=True, slots=True)
    class Typed(Generic[T]):
        a: T

    @dataclass(slots=True)
    class Checked:
        a: int

        def __post_init__(self) -> None:
            self.a *= 2

    @dataclass(frozen=True, slots=True)
    class Own:
        a: int

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own)

        def __hash__(self) -> int:
            return 7

    @dataclass(frozen=True)
    class Open:
        a: int
        b: int = field(default=0, hash=False)

    return {
        "single": (Single, [{"a": 1.0}, {"a": float("nan")}]),
        "nothing": (Nothing, [{}]),
        "identical": (Identical, [{"a": 1}, {"a": 1}]),
        "typed": (Typed, [{"a": "x"}, {"a": 1}]),
        "checked": (Checked, [{"a": 1}, {"a": 2}]),
        "own": (Own, [{"a": 1}, {"a": 2}]),
        "open": (Open, [{"a": 1}, {"a": 1, "b": 2}]),
    }


def _shapes(dataclass: Callable[..., Any]) -> Shapes:
    """Classes of all kinds that are in use, with arguments to make them of."""
    return _usual(dataclass) | _unusual(dataclass)


SHAPES = list(_shapes(dataclasses.dataclass))


@pytest.fixture(params=SHAPES)
def pair(request: pytest.FixtureRequest) -> list[tuple[Any, list[dict[str, Any]]]]:
    """The same class by the standard decorator and by ours."""
    return [_shapes(each)[request.param] for each in DECORATORS.values()]


def _outcome(action: Callable[[], object]) -> object:
    try:
        return action()
    except Exception as error:
        return type(error), str(error)


def test_has_the_same_face(pair: list[tuple[Any, list[dict[str, Any]]]]) -> None:
    (standard, _), (made, _) = pair
    assert str(inspect.signature(made)) == str(inspect.signature(standard))
    assert made.__match_args__ == standard.__match_args__
    assert made.__dict__.get("__slots__") == standard.__dict__.get("__slots__")
    assert [str(each) for each in dataclasses.fields(made)] == [
        str(each) for each in dataclasses.fields(standard)
    ]
    names = ("__name__", "__qualname__", "__module__")
    assert [getattr(made, e) for e in names] == [getattr(standard, e) for e in names]


def _said(cls: Any, given: list[dict[str, Any]]) -> list[object]:
    """Everything that two of them say about each other."""
    made = [cls(**each) for each in given]
    said: list[object] = [repr(each) for each in made]
    for one in made:
        said += [one == other for other in made]
        said += [one != other for other in made]
        said += [_outcome(partial(operator.lt, one, other)) for other in made]
        said += [_outcome(partial(operator.ge, one, other)) for other in made]
        said.append(_outcome(partial(dataclasses.asdict, one)))
        said.append(repr(copy.copy(one)))
        said.append(repr(copy.deepcopy(one)))
        said.append(repr(dataclasses.replace(one)))
        said.append(one == object())
    return said


def test_says_the_same(pair: list[tuple[Any, list[dict[str, Any]]]]) -> None:
    (standard, given), (made, _) = pair
    assert repr(_said(made, given)) == repr(_said(standard, given))


def test_has_the_same_hash(pair: list[tuple[Any, list[dict[str, Any]]]]) -> None:
    (standard, given), (made, _) = pair
    if standard.__hash__ in {None, object.__hash__}:
        assert made.__hash__ is standard.__hash__
        return
    for each in given:
        assert hash(made(**each)) == hash(standard(**each)) or each["a"] != each["a"]


def test_refuses_the_same_arguments(pair: list[tuple[Any, list[dict[str, Any]]]]) -> None:
    (standard, _), (made, _) = pair
    for given in ({"unknown": 1}, {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}):
        with pytest.raises(TypeError) as expected:
            standard(**given)
        with pytest.raises(TypeError, match="unexpected keyword") as found:
            made(**given)
        assert str(found.value) == str(expected.value)


def test_refuses_the_same_changes(pair: list[tuple[Any, list[dict[str, Any]]]]) -> None:
    def changes(cls: Any, given: dict[str, Any]) -> list[object]:
        one = cls(**given)
        return [
            _outcome(lambda: setattr(one, "a", 5)),
            _outcome(lambda: delattr(one, "a")),
        ]

    (standard, given), (made, _) = pair
    for each in given[:1]:
        assert not each or changes(made, each) == changes(standard, each)


def test_a_frozen_one_takes_no_other_attribute() -> None:
    kept = Kept(1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'unknown'"):
        kept.unknown = 1  # type: ignore[attr-defined]
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'unknown'"):
        del kept.unknown  # type: ignore[attr-defined]


def test_has_the_docstring_it_was_given() -> None:
    assert Kept.__doc__ == "At the module's level, for pickle."
    assert _shapes(ours.dataclass)["plain"][0].__doc__ is None


@ours.dataclass(frozen=True, slots=True)
class Kept:
    """At the module's level, for pickle."""

    a: int
    others: list[Kept] = field(default_factory=list, compare=False)


class Loose(Kept):
    """A subclass that is no dataclass and has attributes of its own."""


def test_is_pickled() -> None:
    kept = Kept(1, [Kept(2)])
    assert repr(pickle.loads(pickle.dumps(kept))) == repr(kept)


def test_shows_itself_within_itself() -> None:
    kept = Kept(1)
    kept.others.append(kept)
    assert repr(kept) == "Kept(a=1, others=[...])"


def test_a_subclass_may_have_attributes_that_change() -> None:
    loose = Loose(1)
    loose.note = "mine"  # type: ignore[attr-defined]
    del loose.note  # type: ignore[attr-defined]
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'a'"):
        loose.a = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'a'"):
        del loose.a
    assert loose != Kept(1)


def test_a_default_that_changes_is_refused() -> None:
    with pytest.raises(ValueError, match="mutable default"):

        @ours.dataclass
        class _Shared:
            a: list[int] = []  # noqa: RUF012


def test_what_it_does_not_know_is_refused() -> None:
    with pytest.raises(TypeError, match="unsafe_hash"):
        ours.dataclass(unsafe_hash=True)


def _classes() -> Iterator[type[Any]]:
    for package in ("config", "metadata", "raft", "storage", "controller", "network", "server"):
        root = importlib.import_module(f"{millstream.__name__}.{package}")
        for found in pkgutil.walk_packages(root.__path__, f"{root.__name__}."):
            module = importlib.import_module(found.name)
            for each in vars(module).values():
                is_own = getattr(each, "__module__", None) == found.name
                if is_own and isinstance(each, type) and dataclasses.is_dataclass(each):
                    yield each


def test_the_classes_of_a_node_have_the_arguments_that_their_fields_say() -> None:
    checked = 0
    for each in set(_classes()):
        if "__init__" in each.__dict__ and each.__init__.__module__ == each.__module__:
            known = [(e.name, e.type, _copied(e)) for e in dataclasses.fields(each)]
            expected = make_dataclass("_", known, init=True)
            found = inspect.signature(each)
            assert list(found.parameters) == list(inspect.signature(expected).parameters), each
            checked += 1
    assert checked > 80


def _copied(each: dataclasses.Field[Any]) -> Any:
    given = {
        name: getattr(each, name) for name in ("default", "default_factory", "init", "kw_only")
    }
    return field(**given)
