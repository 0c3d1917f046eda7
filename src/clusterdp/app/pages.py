"""Pages of the app: templates, fields of forms with what is wrong with them, and texts to copy."""

from __future__ import annotations

import re
import secrets
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl

from starlette.responses import HTMLResponse, RedirectResponse, Response

from clusterdp._version import __version__
from clusterdp.app.guard import POLICY
from clusterdp.document.markup import render
from clusterdp.errors import ClusterDPError
from clusterdp.spec.file_terms import in_command_terms

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from starlette.requests import Request

# The files that pages load: the parts of each, from the templates of which package.
_ASSETS = {
    "app.css": (("document", "style.css"), ("app", "app.css")),
    "filter.css": (("document", "filter.css"),),
    "plan.css": (("planning", "plan.css"),),
    "app.js": (("app", "app.js"),),
    "filter.js": (("document", "filter.js"),),
    "plan.js": (("planning", "plan.js"),),
}
_KINDS = {"css": "text/css", "js": "text/javascript"}
# The whole form, for what is wrong with no field in particular.
FORM = "form"
_FLAG = re.compile(r"--([a-z][a-z-]*)")
_WORD = re.compile(r"'([^']+)'|\b(\w+)\b")


class Same(NamedTuple):
    """How to do elsewhere what a page shows.

    Attributes:
        name: Where.
        text: What to copy.
    """

    name: str
    text: str


@dataclass(slots=True)
class Form:
    """What was typed into a form, and what is wrong with it.

    Attributes:
        typed: The values of each field, as they were typed.
        wrong: A sentence for each field that is wrong.
    """

    typed: Mapping[str, Sequence[str]]
    wrong: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_query(cls, request: Request) -> Form:
        """What a link or a form without effects says."""
        query = request.query_params
        return cls({name: list(map(_typed, query.getlist(name))) for name in query})

    @classmethod
    async def from_body(cls, request: Request) -> Form:
        """What a form that acts says."""
        typed: dict[str, list[str]] = {}
        body = (await request.body()).decode(errors="replace")
        for name, value in parse_qsl(body, keep_blank_values=True):
            typed.setdefault(name, []).append(_typed(value))
        return cls(typed)

    def one(self, name: str, otherwise: str = "") -> str:
        """What was typed into a field, without spaces around it."""
        given = self.typed.get(name)
        return otherwise if not given else given[-1].strip()

    def every(self, name: str) -> list[str]:
        """Everything that was typed into fields of this name, or chosen there."""
        return [text for one in self.typed.get(name, ()) if (text := one.strip())]

    def has(self, names: Sequence[str], *others: str) -> bool:
        """Whether anything was typed into some fields, others aside."""
        return any(self.every(name) for name in names if name not in others)

    def number(self, name: str, noun: str = "a number") -> float | None:
        """The number in a field; None if it is empty or wrong."""
        text = self.one(name)
        if not text:
            return None
        try:
            return float(text)
        except ValueError:
            self.wrong[name] = f"{text!r} is not {noun}. Write it as in 0.5."
            return None

    def whole(self, name: str) -> int | None:
        """The whole number in a field; None if it is empty or wrong."""
        text = self.one(name)
        if not text:
            return None
        try:
            return int(text)
        except ValueError:
            self.wrong[name] = f"{text!r} is not a whole number."
            return None

    def needs(self, name: str, what: str) -> bool:
        """Whether a field was filled in; if not, that is what is wrong."""
        if not self.every(name):
            self.wrong[name] = f"Fill in {what}."
        return name not in self.wrong

    @contextmanager
    def about(
        self, *names: str, otherwise: str = FORM, also: Mapping[str, str] | None = None
    ) -> Iterator[None]:
        """Show an error next to the field that it is about.

        Args:
            *names: The fields that it can be about, named as options are.
            otherwise: The field of all others.
            also: Fields by other words of errors, such as names of columns.
        """
        try:
            yield
        except ClusterDPError as error:
            text = str(error)
            said = [*(error.about or ()), *_FLAG.findall(text)]
            said += [word[1] or word[2] for word in _WORD.finditer(text)]
            fields = dict(also or {}) | {name.replace("_", "-"): name for name in names}
            found = (fields.get(one) or fields.get(one.replace("_", "-")) for one in said)
            self.wrong[next(filter(None, found), otherwise)] = in_words(text)


def _typed(value: str) -> str:
    """What was typed: browsers end lines as mail does, and no path has a zero character."""
    return value.replace("\r\n", "\n").replace("\0", "")


def in_words(text: str) -> str:
    """An error as sentences: names of options as the command line has them."""
    said = in_command_terms(text).strip()
    return (said[:1].upper() + said[1:]).rstrip(".") + "."


@cache
def asset(name: str) -> Response | None:
    """A file that pages load; None for another name."""
    if name not in _ASSETS:
        return None
    parts = (
        files(f"clusterdp.{package}").joinpath("templates", part).read_text("utf-8")
        for package, part in _ASSETS[name]
    )
    return Response("\n".join(parts), media_type=_KINDS[name.rpartition(".")[2]])


def show(request: Request, template: str, status: int = 200, **values: Any) -> Response:
    """A page.

    Args:
        request: The request that it answers.
        template: Its template, of this package.
        status: The status of the answer.
        **values: What is put into it.
    """
    nonce = secrets.token_urlsafe(16)
    given = {"form": Form({}), "same": (), "sheets": (), "scripts": (), **values}
    page = render(
        ("clusterdp.app", "clusterdp.planning"),
        template,
        at=request.scope["root_path"],
        here=request.scope["path"].removeprefix(request.scope["root_path"]),
        nonce=nonce,
        version=__version__,
        FORM=FORM,
        **given,
    )
    policy = POLICY.format(nonce=f" 'nonce-{nonce}'")
    return HTMLResponse(page, status, {"content-security-policy": policy})


def go_to(request: Request, path: str) -> Response:
    """Another page, which the browser asks for itself: going back does not act again."""
    return RedirectResponse(f"{request.scope['root_path']}{path}", 303)


def download(name: str, content: bytes, kind: str) -> Response:
    """A file for the person to save."""
    return Response(
        content, media_type=kind, headers={"content-disposition": f'attachment; filename="{name}"'}
    )
