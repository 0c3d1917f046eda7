"""A page as one text, which needs nothing beside itself.

Templates are of Jinja2. Whatever is put into one is escaped and plain, and a name that was not
given is an error. Pages extend `base.html`; `parts.html` has what they share. A page has scripts
only if it fills the block `script`: the policy of all others forbids them.
"""

from __future__ import annotations

from typing import Any

from clusterdp._text import plain_text


def render(package: str, template: str, **values: Any) -> str:
    """A page.

    Args:
        package: The package whose folder `templates` holds the template.
        template: Its name, such as `card.html`.
        **values: What is put into it.
    """
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("clusterdp.document")]),
        autoescape=True,
        finalize=_plain,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(template).render(values)


def _plain(value: Any) -> Any:
    """What is put into a page, without characters that are not plain; markup stays markup."""
    return type(value)(plain_text(value, "\n\t")) if isinstance(value, str) else value
