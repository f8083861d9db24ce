"""Settings: one TOML file, overridden by the environment, read once when a service starts.

``PARLEY_PARTY_PORT=8001`` sets ``port``; ``PARLEY_PARTY_POLICY__EPSILON=2`` sets ``epsilon`` in the table ``[policy]``;
lists and tables may be given as JSON. A variable ending in ``_FILE``, or a key of the file's top level ending in
``_file``, names a file that holds the value: for secrets. The environment takes precedence over the file. A name that
is not a setting is refused, in either place.

`explain_settings` and `settings_in_effect` list every setting with type, default and meaning, or with value and source.
They walk the pydantic models, nested tables and lists of tables included, so that nothing can be left out.
"""

from __future__ import annotations

import os
import re
import tomllib
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, Union, get_args, get_origin

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import BaseModel, Field, PrivateAttr, SecretStr, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings.exceptions import SettingsError

from parley.common.encoding.texts import decode_text
from parley.common.errors import InvalidInputError
from parley.common.service.secret_files import secret_files
from parley.common.service.tokens import Caller, KnownToken
from parley.common.service.tracing import Tracing
from parley.common.storage.keys import identity_key, read_key
from parley.common.strict import Identifier, Setting, TokenHash, faults, is_loopback

_FILE = "_file"
_VERSION = 1


class Tls(Setting):
    """TLS 1.3 for incoming connections."""

    certificate: Annotated[Path, Field(description="PEM file with the service's certificate chain")]
    key: Annotated[Path, Field(description="PEM file with the certificate's private key")]
    client_ca: Annotated[
        Path | None,
        Field(description="PEM file of the authority whose client certificates are required; none if unset"),
    ] = None
    clients: Annotated[
        Literal["required", "optional"],
        Field(
            description="whether every client has to show one; where it is optional, one that is shown has to be good"
        ),
    ] = "required"


class Listener(Setting):
    """An address of its own for something that is served beside the service."""

    host: Annotated[
        str, Field(description="address to listen on; in a container that publishes the port on loopback, 0.0.0.0")
    ] = "127.0.0.1"
    plain_http: Annotated[
        bool, Field(description="whether to listen beyond this machine without TLS, where something else protects it")
    ] = False

    @model_validator(mode="after")
    def _protected(self) -> Self:
        check_protected(self.host, is_protected=self.plain_http or self._has_tls)
        return self

    @property
    def _has_tls(self) -> bool:
        return False


class MetricsListener(Listener):
    """Metrics for those who run the service, times included, on a port of their own."""

    port: Annotated[int, Field(ge=1, le=65535, description="port of GET /metrics, which shows times too")]
    token_hash: Annotated[
        TokenHash | None,
        Field(
            description="hash of the bearer token that a monitor shows, as the command `token` prints it; without one "
            "all of this machine may read, and host has to be its loopback"
        ),
    ] = None
    tls: Annotated[Tls | None, Field(description="certificate and key; without them plain HTTP")] = None

    @model_validator(mode="after")
    def _asks_for_a_token(self) -> Self:
        """Refuse to show durations to everybody on a network."""
        if self.token_hash is None and not is_loopback(self.host):
            raise ValueError(
                f"token_hash: a monitor shows a token where host is {self.host}, which is not this machine alone: "
                "`parley-party token` makes one"
            )
        return self

    @property
    def _has_tls(self) -> bool:
        return self.tls is not None


def check_protected(host: str, *, is_protected: bool) -> None:
    """Raise ValueError for an address beyond this machine that nothing protects."""
    if not is_protected and not is_loopback(host):
        raise ValueError(f"host: {host} is not this machine alone: set tls, or plain_http = true")


class Limits(Setting):
    """What one request, and one connection, may ask for."""

    body_bytes: Annotated[int, Field(ge=1024, description="largest request body in bytes: of a table, an array")] = (
        2**24
    )
    round_bytes: Annotated[
        int,
        Field(
            ge=1024,
            description="largest question and largest answer of a party's round in bytes, 8 a number; a run that needs "
            "more is refused when it is proposed, and no question may be longer than its run needs, or body_bytes",
        ),
    ] = 2**28
    run_bytes: Annotated[int, Field(ge=1024, description="largest body in JSON of a run, of records, of receipts")] = (
        2**22
    )
    json_bytes: Annotated[int, Field(ge=1024, description="largest body in JSON of any other request")] = 2**18
    head_bytes: Annotated[int, Field(ge=1024, description="largest head of a request: its line and its headers")] = (
        2**16
    )
    receive_seconds: Annotated[
        float, Field(gt=0, description="how long a request may take to arrive, and a response to be taken")
    ] = 30.0
    connections: Annotated[
        int,
        Field(
            ge=1,
            description="connections open at once, or as many as the process may have files open for; beyond it only "
            "what needs no token is answered, and parties and key holders that connect themselves",
        ),
    ] = 512
    stop_seconds: Annotated[
        int, Field(ge=0, description="how long open requests may finish when the service stops")
    ] = 5


class Shares(Setting):
    """What one caller, known by its tokens, may have at a time, so that it leaves something to all others."""

    connections: Annotated[
        int, Field(ge=1, description="connections of one caller, and never more than half of limits.connections")
    ] = 64
    requests: Annotated[
        int, Field(ge=1, description="requests of one caller that are worked at together, where it is the only one")
    ] = 8
    failed_sign_ins: Annotated[
        int, Field(ge=1, description="failed sign-ins from one address in a minute, before it is told to wait")
    ] = 30


class Settings(BaseSettings):
    """The root of a service's settings; a subclass names its ``env_prefix``."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, env_nested_delimiter="__", validate_default=True
    )

    version: Annotated[int, Field(description="version of the form of these settings; there is only 1")] = _VERSION

    _source: Path | None = PrivateAttr(default=None)
    _secret_files: tuple[Path, ...] = PrivateAttr(default=())

    @field_validator("version")
    @classmethod
    def _known_version(cls, version: int) -> int:
        if version != _VERSION:
            raise ValueError(
                f"this Parley reads settings of version {_VERSION}: use one that knows these, or rewrite them"
            )
        return version

    @property
    def source(self) -> Path | None:
        """The file that these were read from, or None."""
        return self._source

    @classmethod
    def load(cls, path: Path | None = None) -> Self:
        """Load the settings of a TOML file (or none) and the environment.

        Raises InvalidInputError that names the file and the faulty keys, never a value.
        """
        _refuse_unknown_variables(cls)
        values = _read_toml(path) if path else {}
        try:
            settings = cls(**_with_files_read(values, f"settings {path}: "))
        except ValidationError as error:
            where = "" if path else "; if they are in a file, say --config FILE"
            raise InvalidInputError(f"settings {path or 'of the environment'}: {faults(error)}{where}") from None
        except SettingsError as error:
            raise InvalidInputError(f"settings of the environment: {error}") from None
        settings._source = path
        prefix = cls.model_config["env_prefix"].lower()
        ours = {name: value for name, value in os.environ.items() if name.lower().startswith(prefix)}
        settings._secret_files = tuple(
            Path(value) for name, value in (values | ours).items() if name.lower().endswith(_FILE) and value
        )
        return settings

    @property
    def secret_files(self) -> tuple[Path, ...]:
        """The files that these settings name for keys, tokens and other secrets."""
        return (*self._secret_files, *secret_files(self))

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 -- the signature is pydantic-settings'
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Put the environment, with ``*_FILE`` read, over the file."""
        if isinstance(env_settings, EnvSettingsSource):
            prefix = settings_cls.model_config["env_prefix"].lower()
            ours = {name.upper(): value for name, value in env_settings.env_vars.items() if name.startswith(prefix)}
            read = _with_files_read(ours, "environment variable ")
            env_settings.env_vars = {name.lower(): value for name, value in read.items()}
        return env_settings, init_settings


class ServiceSettings(Settings):
    """The settings that all services share; a subclass declares the callers by the key ``callers_key``."""

    callers_key: ClassVar[str] = "learners"

    name: Annotated[Identifier, Field(description="the service's name, by which others know it")]
    host: Annotated[str, Field(description="address to listen on")] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535, description="port to listen on; 0 takes a free one")] = 8000
    state: Annotated[Path, Field(description="directory of all that the service writes; keep it private and backed up")]
    identity_key: Annotated[
        SecretStr | None,
        Field(
            description="PEM of the Ed25519 key that the service signs with, best given as identity_key_file; if "
            "unset, identity.key in the state directory, made when first needed"
        ),
    ] = None
    log_format: Annotated[Literal["json", "text"], Field(description="one JSON object a line, or text for people")] = (
        "json"
    )
    tls: Annotated[Tls | None, Field(description="certificate and key; without them the service speaks plain HTTP")] = (
        None
    )
    limits: Annotated[Limits, Field(description="what one request may ask for")] = Limits()
    shares: Annotated[Shares, Field(description="what one caller may have at a time")] = Shares()
    tracing: Annotated[Tracing | None, Field(description="where traces of rounds go; none are made if unset")] = None
    heartbeat: Annotated[
        Path | None,
        Field(
            description="directory of two files that the service touches every ten seconds, parley-alive and, while it "
            "is ready, parley-ready: for checks of health that cost nothing; none if unset"
        ),
    ] = None
    metrics: Annotated[
        MetricsListener | None,
        Field(description="where a monitor reads metrics apart from callers, times included; nowhere if unset"),
    ] = None
    plain_http: Annotated[
        bool, Field(description="whether to listen beyond this machine without TLS, where something else protects it")
    ] = False

    @model_validator(mode="after")
    def _protected(self) -> Self:
        """Refuse plain HTTP beyond this machine unless it is stated."""
        check_protected(self.host, is_protected=self.plain_http or self.tls is not None)
        return self

    @model_validator(mode="after")
    def _callers_distinct(self) -> Self:
        """Refuse two callers with one name or token, and a monitor with the token of a caller."""
        callers: tuple[Caller, ...] = getattr(self, self.callers_key, ())
        for values in ([caller.name for caller in callers], [token.hash for token in self.tokens]):
            if len(set(values)) != len(values):
                raise ValueError(f"{self.callers_key}: two share a name or a token")
        if self.metrics and self.metrics.token_hash in {token.hash for token in self.tokens}:
            raise ValueError(f"metrics: its token is one of {self.callers_key}")
        return self

    @model_validator(mode="after")
    def _ports_distinct(self) -> Self:
        """Refuse two listeners on one port."""
        ports = [port for port in (self.port, *self.side_ports.values()) if port]
        if len(set(ports)) != len(ports):
            raise ValueError(f"port: {', '.join(map(str, ports))}: each listener needs a port of its own")
        return self

    @property
    def tokens(self) -> tuple[KnownToken, ...]:
        """The tokens of all callers."""
        callers: tuple[Caller, ...] = getattr(self, self.callers_key, ())
        return tuple(token for caller in callers for token in caller.known_tokens)

    @property
    def peer_connections(self) -> int:
        """The number of services that this one connects to."""
        return 0

    @property
    def certificates(self) -> tuple[Path, ...]:
        """The certificates that the service presents, as a server and as a client."""
        servers = (self.tls, self.metrics.tls if self.metrics else None)
        return tuple(tls.certificate for tls in servers if tls)

    @property
    def side_ports(self) -> dict[str, int]:
        """The ports that the service listens on beside its own, by the variables of their settings."""
        prefix = self.model_config["env_prefix"]
        return {f"{prefix}METRICS": self.metrics.port} if self.metrics else {}

    def signing_key(self) -> Ed25519PrivateKey:
        """Read the service's signing key; raises OwnKeyError where it cannot be used, or its file is open to others."""
        if self.identity_key is None:
            return identity_key(self.state / "identity.key")
        return read_key(self.identity_key.get_secret_value().encode(), "identity_key")

    blas_threads: Annotated[
        int, Field(ge=1, description="threads of one matrix product; more than 1 helps on a machine of its own alone")
    ] = 1


def _read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file; raises InvalidInputError."""
    try:
        return tomllib.loads(decode_text(path.read_bytes()))
    except FileNotFoundError as error:
        near = sorted(path.parent.glob(f"*/{path.name}"))
        such = f" such as --config {near[0]}" if near else ""
        raise InvalidInputError(f"settings {path}: {error.strerror}: say --config FILE{such}") from None
    except IsADirectoryError as error:
        near = sorted(path.glob("*.toml"))
        such = f": say --config {near[0]}" if near else ""
        raise InvalidInputError(f"settings {path}: {error.strerror}{such}") from None
    except OSError as error:
        raise InvalidInputError(f"settings {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidInputError(f"settings {path}: not a TOML file, for it is not UTF-8") from None
    except tomllib.TOMLDecodeError as error:  # its text may hold a part of a secret
        place = re.search(r"\(at (line \d+, column \d+|end of document)\)$", str(error))
        where = f": see {place[1]}" if place else ""
        raise InvalidInputError(f"settings {path}: not a TOML file{where}") from None


def _refuse_unknown_variables(cls: type[Settings]) -> None:
    """Raise InvalidInputError that names a misspelt variable, which would otherwise be ignored."""
    prefix = cls.model_config["env_prefix"].lower()
    for variable in os.environ:
        name = variable.lower()
        if name.startswith(prefix):
            field = name.removeprefix(prefix).split("__")[0]
            if field not in cls.model_fields and field.removesuffix(_FILE) not in cls.model_fields:
                raise InvalidInputError(f"the environment variable {variable} is not a setting")


def _with_files_read(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Replace each ``x_file`` (or ``X_FILE``) among values by ``x`` with the content of the file.

    Raises InvalidInputError that begins with ``where`` and the name, for a file that cannot be read.
    """
    read: dict[str, Any] = {}
    for name, value in values.items():
        if name.lower().endswith(_FILE) and isinstance(value, str) and value:
            try:
                read[name[: -len(_FILE)]] = decode_text(Path(value).read_bytes()).strip()
            except OSError as error:
                raise InvalidInputError(f"{where}{name}: {error.strerror}") from None
            except UnicodeDecodeError:
                raise InvalidInputError(f"{where}{name}: not a text") from None
        else:
            read[name] = value
    return read


SettingSource = Literal["file", "environment", "default"]

_HIDDEN = "(hidden)"
_BARE = {str: "text", int: "whole number", float: "number", bool: "true or false", Path: "path", SecretStr: "secret"}


@dataclass(frozen=True, slots=True)
class ExplainedSetting:
    """A setting and its meaning: its key, as ``policy.epsilon`` or ``learners[].name``; ``required`` if no default."""

    key: str
    type: str
    required: bool
    default: Any
    meaning: str

    @property
    def head(self) -> str:
        """Key, type and default in a line."""
        return f"{self.key}  ({self.type}{', required' if self.required else f'; {_spelt(self.default)} if not given'})"


@dataclass(frozen=True, slots=True)
class SettingInEffect:
    """A setting as a service would use it, secrets hidden, and where its value comes from."""

    key: str
    value: Any
    source: SettingSource

    @property
    def line(self) -> str:
        """Key, value and source in a line."""
        return f"{self.key} = {_spelt(self.value)}  ({self.source})"


def explain_settings(
    model: type[BaseModel], prefix: str = "", defaults: BaseModel | None = None
) -> Iterator[ExplainedSetting]:
    """Explain every setting of a model, in order, nested tables and lists of tables after the model's own fields.

    ``defaults`` is the table that applies where none is given.

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
        nested += [(below, inner, table) for inner in _models(field.annotation)]
    for below, inner, table in nested:
        yield from explain_settings(inner, below, table)


def _meaning(model: type[BaseModel], field: FieldInfo) -> str:
    """Return a field's description; for the tag that distinguishes tables, the summary of its table."""
    is_tag = get_origin(field.annotation) is Literal and len(get_args(field.annotation)) == 1
    return field.description or ((model.__doc__ or "").partition("\n")[0] if is_tag else "")


def settings_in_effect(settings: Settings) -> Iterator[SettingInEffect]:
    """List every setting in effect, with secrets hidden."""
    prefix = type(settings).model_config["env_prefix"]
    variables = frozenset(name.upper().removesuffix("_FILE") for name in os.environ)

    def walk(model: BaseModel, path: tuple[str, ...]) -> Iterator[SettingInEffect]:
        for name in type(model).model_fields:
            value, keys = getattr(model, name), (*path, name)
            if isinstance(value, BaseModel):
                yield from walk(value, keys)
                continue
            overridden = any(f"{prefix}{'__'.join(keys[:n])}".upper() in variables for n in range(1, len(keys) + 1))
            source: SettingSource = "file" if name in model.model_fields_set else "default"
            yield SettingInEffect(".".join(keys), _plain(value), "environment" if overridden else source)

    yield from walk(settings, ())


def _models(annotation: Any) -> Iterator[type[BaseModel]]:  # noqa: ANN401 -- any annotation
    """Yield the models in an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        return
    for part in get_args(annotation):
        yield from _models(part)


def _is_list(annotation: Any) -> bool:  # noqa: ANN401 -- as above
    """Say whether an annotation is a list, or may be one."""
    return get_origin(annotation) in {tuple, list} or any(map(_is_list, get_args(annotation)))


def _type_of(field: FieldInfo) -> str:
    return _type_words(field.annotation)


def _type_words(annotation: Any) -> str:  # noqa: ANN401 -- as above
    """Return a type in words."""
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
    """Return the name of a type without parts, as settings files use it."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "table"
    name = getattr(annotation, "__name__", str(annotation))
    return _BARE.get(annotation, {"HttpUrl": "URL", "date": "day"}.get(name, name))


def _plain(value: Any) -> Any:  # noqa: ANN401 -- any value of a setting
    """Return a value as in JSON, secrets hidden."""
    if isinstance(value, SecretStr):
        return _HIDDEN
    if isinstance(value, BaseModel):
        return {name: _plain(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, Sequence | frozenset) and not isinstance(value, str | bytes):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _spelt(value: Any) -> str:  # noqa: ANN401 -- as above
    """Return a value as people read it."""
    import json  # noqa: PLC0415 -- for text alone

    return "nothing" if value is None else json.dumps(value, ensure_ascii=False)
