"""Settings that explain themselves: every one with type, default and meaning, from the settings' own fields.

One source, the pydantic models: nested tables and lists of tables are walked, so nothing can be left out.
"""

from __future__ import annotations

import os
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from parley.common.service.settings import Settings

SettingSource = Literal["file", "environment", "default"]

_HIDDEN = "(hidden)"
_BARE = {str: "text", int: "whole number", float: "number", bool: "true or false", Path: "path", SecretStr: "secret"}


@dataclass(frozen=True, slots=True)
class ExplainedSetting:
    """A setting: its key, such as ``policy.epsilon`` or ``learners[].name``; ``required`` where it has no default."""

    key: str
    type: str
    required: bool
    default: Any
    meaning: str

    @property
    def head(self) -> str:
        """Key, type and default on a line."""
        return f"{self.key}  ({self.type}{', required' if self.required else f'; {_spelt(self.default)} if not given'})"


@dataclass(frozen=True, slots=True)
class SettingInEffect:
    """A setting as a service would use it, secrets hidden, and whether file, environment or neither says so."""

    key: str
    value: Any
    source: SettingSource

    @property
    def line(self) -> str:
        """Key, value and source on a line."""
        return f"{self.key} = {_spelt(self.value)}  ({self.source})"


def explain_settings(
    model: type[BaseModel], prefix: str = "", defaults: BaseModel | None = None
) -> Iterator[ExplainedSetting]:
    """Every setting of a model, tables and lists of tables walked, in their order; each model's own before its tables'.

    ``defaults`` is the table that stands in where none is given.

    >>> from parley.common.service.settings import Tls
    >>> print(next(explain_settings(Tls)).head)
    certificate  (path, required)
    """
    nested: list[tuple[str, type[BaseModel], BaseModel | None]] = []
    for name, field in model.model_fields.items():
        key, required, table = f"{prefix}{name}", field.is_required() and defaults is None, None
        default = None if field.is_required() else field.get_default(call_default_factory=True, validated_data={})
        default = getattr(defaults, name, default)
        if isinstance(default, BaseModel):
            default, table = None, default
        yield ExplainedSetting(key, _type_of(field), required, _plain(default), _meaning(model, field))
        below = f"{key}{'[]' if _is_list(field.annotation) else ''}."
        nested += [(below, each, table) for each in _models(field.annotation)]
    for below, each, table in nested:
        yield from explain_settings(each, below, table)


def _meaning(model: type[BaseModel], field: FieldInfo) -> str:
    """A field's description; of the word that tells one table from others, what that table is."""
    is_tag = get_origin(field.annotation) is Literal and len(get_args(field.annotation)) == 1
    return field.description or ((model.__doc__ or "").partition("\n")[0] if is_tag else "")


def settings_in_effect(settings: Settings) -> Iterator[SettingInEffect]:
    """Every setting in effect, with secrets hidden."""
    prefix = type(settings).model_config.get("env_prefix", "").upper()
    variables = frozenset(name.upper().removesuffix("_FILE") for name in os.environ)

    def walk(model: BaseModel, path: tuple[str, ...]) -> Iterator[SettingInEffect]:
        for name in type(model).model_fields:
            value, here = getattr(model, name), (*path, name)
            if isinstance(value, BaseModel):
                yield from walk(value, here)
                continue
            spoken = any(f"{prefix}{'__'.join(here[:n])}".upper() in variables for n in range(1, len(here) + 1))
            given: SettingSource = "file" if name in model.model_fields_set else "default"
            yield SettingInEffect(".".join(here), _plain(value), "environment" if spoken else given)

    yield from walk(settings, ())


def _models(annotation: Any) -> Iterator[type[BaseModel]]:  # noqa: ANN401 -- any annotation
    """The models that an annotation names."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        return
    for part in get_args(annotation):
        yield from _models(part)


def _is_list(annotation: Any) -> bool:  # noqa: ANN401 -- as above
    """Whether an annotation is one of lists, or may be one."""
    return get_origin(annotation) in {tuple, list} or any(map(_is_list, get_args(annotation)))


def _type_of(field: FieldInfo) -> str:
    return _type_words(field.annotation)


def _type_words(annotation: Any) -> str:  # noqa: ANN401 -- as above
    """A type in words."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " or ".join(f'"{part}"' for part in parts)
    if origin in {Union, types.UnionType}:
        return " or ".join(dict.fromkeys(_type_words(part) for part in parts if part is not type(None)))
    if origin in {tuple, list}:
        return f"list of {_type_words(parts[0])}"
    if origin is dict:
        return f"table of {_type_words(parts[1])} by name"
    return _type_words(parts[0]) if origin is Annotated else _name_of(annotation)


def _name_of(annotation: Any) -> str:  # noqa: ANN401 -- as above
    """What a type without parts is called in a settings file."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "table"
    name = getattr(annotation, "__name__", str(annotation))
    return _BARE.get(annotation, {"HttpUrl": "URL", "date": "day"}.get(name, name))


def _plain(value: Any) -> Any:  # noqa: ANN401 -- any value of a setting
    """A value as JSON has it, secrets hidden."""
    if isinstance(value, SecretStr):
        return _HIDDEN
    if isinstance(value, BaseModel):
        return {name: _plain(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, Sequence | frozenset) and not isinstance(value, str | bytes):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _spelt(value: Any) -> str:  # noqa: ANN401 -- as above
    """A value for people."""
    import json  # noqa: PLC0415 -- for text alone

    return "nothing" if value is None else json.dumps(value, ensure_ascii=False)
