"""Which format an answer has: the one that the client likes best among those that the operation offers."""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.api.routes import Media


def chosen_media(accept: str | None, offered: Sequence[Media]) -> Media:
    """The offered format with the highest weight; the first one when the client names none of them."""
    weights = _weights(accept or "*/*")
    best, chosen = 0.0, offered[0]
    for media in offered:
        kind = media.partition("/")[0]
        weight = next((weights[name] for name in (media.value, f"{kind}/*", "*/*") if name in weights), 0.0)
        if weight > best:
            best, chosen = weight, media
    return chosen


def _weights(accept: str) -> dict[str, float]:
    weights: dict[str, float] = {}
    for item in accept.split(","):
        name, *parameters = (part.strip().lower() for part in item.split(";"))
        weight = next((p.removeprefix("q=") for p in parameters if p.startswith("q=")), "1")
        try:
            weights[name] = float(weight)
        except ValueError:
            weights[name] = 0.0
    return weights
