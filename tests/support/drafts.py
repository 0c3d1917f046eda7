"""Requests with their questions chosen, from options as people give them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clusterdp.planning.decide import Draft
from clusterdp.spec.parse import parse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clusterdp.spec.fields import Options


def draft_of(given: Mapping[str, Any] | Options) -> Draft:
    """The draft of some options."""
    return Draft.from_request(parse(given))
