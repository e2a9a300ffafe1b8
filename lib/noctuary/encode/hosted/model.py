"""One hosted model as it is configured, its identity, and the file by which recall finds it.

`encoders/<fingerprint>/hosted.json` holds names, an address and the name of a variable, never a
key. A recall asks the model that made its snapshot, whatever the settings say by then.
"""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from noctuary.encode.fingerprint import HOSTED_POOLING, EncoderFingerprint
from noctuary.encode.hosted.providers import HOSTED_PROVIDERS, Provider
from noctuary.errors import ConfigError, EncoderError
from noctuary.files import write_text
from noctuary.foreign_json import parse_json
from noctuary.hashing import hash_text
from noctuary.settings.sections import EncoderSettings
from noctuary.settings.web_address import join_path, require_web_address
from noctuary.values import dataclass

HOSTED_FILE = "hosted.json"
FORMAT_VERSION = 1
UNKNOWN_MAX_TOKENS = 8_192
"""Assumed of a model that is not listed: what all but the smallest read. A longer text is cut."""

_TYPES: dict[str, type] = {"str": str, "int": int, "bool": bool}


@dataclass(frozen=True, slots=True)
class HostedModel:
    """A model behind a provider's interface.

    Attributes:
        provider: "voyage", "openai" or "cohere".
        name: The model's name there.
        dimension: Length of its vectors.
        asks_dimension: Whether a request names that length; False where it is the model's own.
        max_tokens: Tokens of one text that it reads.
        request_tokens: Tokens that one request may hold.
        url: Base URL in the place of the provider's own; empty: the provider's.
        api_key_variable: Environment variable that holds the key.
    """

    provider: str
    name: str
    dimension: int
    asks_dimension: bool
    max_tokens: int
    request_tokens: int
    url: str
    api_key_variable: str

    @property
    def title(self) -> str:
        """Provider and model, as messages name it."""
        return f"{self.provider}:{self.name}"

    @property
    def form(self) -> Provider:
        """How its provider is talked to."""
        return HOSTED_PROVIDERS[self.provider]

    @property
    def address(self) -> str:
        """Where its requests are posted to."""
        base, path = self.form.address
        return join_path(self.url or base, path)

    def fingerprint(self) -> EncoderFingerprint:
        """Return the identity of the space, as far as it can be known from outside.

        Nobody sees the weights: in the place of their hash stands that of provider, name and
        dimension. The address is no part of it: a gateway may move.
        """
        weights = hash_text("hosted", self.provider, self.name, str(self.dimension))
        return EncoderFingerprint(
            self.title, weights, self.dimension, HOSTED_POOLING, True, "", "", self.max_tokens
        )

    def describe(self) -> dict[str, Any]:
        """Return what the model's file says."""
        known = self.fingerprint().to_json()
        return {"format_version": FORMAT_VERSION, "fingerprint": known, "model": asdict(self)}


def hosted_model(settings: EncoderSettings) -> HostedModel:
    """Return the configured hosted model; for settings whose provider is not the local one.

    Raises:
        ConfigError: The address is none, or the length of the vectors is not known or not to be
            had.
    """
    if settings.url:
        try:
            require_web_address(settings.url)
        except ValueError as error:
            raise ConfigError(f"encoder.url: {error}") from None
    form = HOSTED_PROVIDERS[settings.provider]
    facts = form.models.get(settings.model)
    title, dimension = f"{settings.provider}:{settings.model}", settings.dimension
    if facts is None and not dimension:
        raise ConfigError(
            f"{title} is not a model that noctuary knows; set encoder.dimension to the length of "
            "its vectors"
        )
    if facts is not None and dimension not in (0, facts.dimension, *facts.lengths):
        lengths = ", ".join(str(n) for n in sorted({facts.dimension, *facts.lengths}))
        if isinstance(facts.lengths, range):
            lengths = f"{facts.lengths.start} to {facts.dimension}"
        raise ConfigError(
            f"encoder.dimension is {dimension}; {title} gives {lengths}. Choose one of these, or 0 "
            "for its own."
        )
    own = dimension if facts is None else facts.dimension
    return HostedModel(
        provider=settings.provider,
        name=settings.model,
        dimension=dimension or own,
        # Many gateways refuse a length that is asked for: of an unlisted model none is.
        asks_dimension=dimension not in (0, own),
        max_tokens=UNKNOWN_MAX_TOKENS if facts is None else facts.max_tokens,
        request_tokens=form.request_tokens if facts is None else facts.request_tokens,
        url=settings.url,
        api_key_variable=settings.api_key_variable,
    )


def price_of(settings: EncoderSettings) -> float:
    """Return what a million tokens cost, in USD, as configured or as published.

    Raises:
        ConfigError: Neither says.
    """
    facts = HOSTED_PROVIDERS[settings.provider].models.get(settings.model)
    published = None if facts is None else facts.usd_per_million_tokens
    if settings.usd_per_million_tokens > 0:
        return settings.usd_per_million_tokens
    if published is None:
        raise ConfigError(
            f"the price of {settings.provider}:{settings.model} is not known, so nothing can be "
            "estimated before it is paid: set encoder.usd_per_million_tokens"
        )
    return published


def write_description(directory: Path, model: HostedModel) -> None:
    """Replace the model's file atomically; the directory is made."""
    directory.mkdir(parents=True, exist_ok=True)
    text = json.dumps(model.describe(), indent=1, sort_keys=True)
    write_text(directory / HOSTED_FILE, text + "\n")


def read_description(directory: Path) -> HostedModel:
    """Return the model of a directory.

    Raises:
        EncoderError: There is no file, or it is not one that this version wrote.
    """
    path = directory / HOSTED_FILE
    try:
        told: Any = parse_json(path.read_text(encoding="utf-8"))
        model = _from_json(told["model"])
        whole = told == model.describe()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EncoderError(
            f"cannot read {path} ({type(error).__name__}); expected what a night writes of a "
            "hosted model. Run the nightly job again."
        ) from None
    if not whole:
        raise EncoderError(
            f"{path} is of another version of noctuary, or was changed by hand. Run the nightly "
            "job again."
        )
    return model


def _from_json(told: dict[str, Any]) -> HostedModel:
    for field in fields(HostedModel):
        # bool is a subclass of int, and True must not pass for a dimension.
        if type(told[field.name]) is not _TYPES[str(field.type)]:
            raise TypeError(field.name)
    model = HostedModel(**told)
    if model.provider not in HOSTED_PROVIDERS or model.dimension < 1:
        raise ValueError(model.provider)
    if model.url:
        require_web_address(model.url)
    return model
