"""From settings to a hosted encoder that embeds a night's texts.

What belongs here: putting its parts together. What does not: reading the key, which the client does
with the first request: a night with nothing to embed needs none.
"""

from __future__ import annotations

from collections.abc import Callable

from noctuary.encode.hosted.client import HostedClient
from noctuary.encode.hosted.cost import Spending
from noctuary.encode.hosted.documents import HostedEncoder
from noctuary.encode.hosted.model import HostedModel, hosted_model, price_of
from noctuary.encode.hosted.retrying import Patience
from noctuary.errors import ConfigError
from noctuary.settings.sections import EncoderSettings


def require_hosted_model(settings: EncoderSettings) -> HostedModel:
    """Return the configured hosted model.

    Raises:
        ConfigError: If the encoder is local, or as for `hosted_model`.
    """
    model = hosted_model(settings)
    if model is None:
        raise ConfigError(
            f"encoder.provider is {settings.provider!r}; a hosted encoder needs a provider"
        )
    return model


def open_hosted_encoder(settings: EncoderSettings, say: Callable[[str], None]) -> HostedEncoder:
    """Return the configured hosted encoder with a night's budget and patience.

    Args:
        settings: Provider, model, address, key variable, budget and price.
        say: Shown the estimate before anything is sent.

    Raises:
        ConfigError: As for `require_hosted_model`, or the price is not known.
    """
    model = require_hosted_model(settings)
    spending = Spending(settings.budget_usd, price_of(settings))
    return HostedEncoder(HostedClient(model), spending, Patience(), say)
