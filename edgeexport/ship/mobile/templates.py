"""Templates of packages: Jinja2, where a name that is not there is an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from edgeexport import text

if TYPE_CHECKING:
    import jinja2


def environment(**filters: Callable) -> jinja2.Environment:
    """Templates by their path in `edgeexport/ship/mobile/`, with these filters and `size`, of
    bytes.
    """
    import jinja2

    made = jinja2.Environment(
        loader=jinja2.PackageLoader("edgeexport.ship.mobile", "."),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    made.filters.update(filters, size=text.size)
    return made
