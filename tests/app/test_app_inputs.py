"""Odd inputs: a page says what is wrong with them; none fails, and none shows them as markup."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest

from running_app import Answer, Client, running_app

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ODD = ["\0", "a" * 5000, "~nobody/x", "nan", "1e999", "9" * 40, "\u202e<b>", "../..", "=", "[", "*"]
ESTIMATED = (
    "segments",
    "by_crossed",
    "metric_texts",
    "exposure",
    "fold",
    "level",
    "look",
    "answers",
)
DECLARED = ("role-4", "kind-3", "mean-3", "epsilon", "control", "constraint", "metric", "values-3")


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with running_app() as app:
        found = Client(app)
        found.sign_in()
        yield found


def get(client: Client, path: str, **query: str) -> Answer:
    return client.ask(f"{client.at}{path}?{urlencode(query)}")


def post(client: Client, path: str, **typed: str) -> Answer:
    origin = f"http://{client.app.access.host}"
    return client.ask(client.at + path, "POST", urlencode(typed), Origin=origin)


@pytest.mark.parametrize("odd", ODD, ids=lambda text: ascii(text[:8]))
def test_odd_inputs_are_answered(client: Client, odd: str, published: Path, source: Path) -> None:
    release = str(published)
    answers = [get(client, "/names", under=odd), get(client, "/ledger", ledger=odd)]
    answers += [get(client, path, release=odd, verify="1") for path in ("/estimate", "/folder")]
    answers += [
        get(client, "/estimate", release=release, go="1", **{one: odd}) for one in ESTIMATED
    ]
    answers.append(post(client, "/publish", table=odd))
    answers.append(post(client, "/errata", folder=odd, text=odd))
    answers.append(post(client, "/ask", release=release, by=odd, out=f"{release}-asked"))
    answers.append(post(client, "/answer", followup=odd, epsilon=odd, ledger=odd, out=odd))
    answers.append(post(client, "/ledger", ledger=odd, verb="create", cap_epsilon="nan"))
    opened = post(client, "/publish", table=str(source)).headers["location"]
    draft = opened.removeprefix(client.at)
    roles = {"role-0": "unit", "role-1": "arm", "role-3": "outcome", "kind-3": "count"}
    for one in DECLARED:
        typed = {"roles": "1", "values-3": "3", "epsilon": "2", **roles, one: odd}
        answers.append(post(client, draft, **typed))
    assert {answer.status for answer in answers} <= {200, 303}
    assert not any("<b>" in answer.body for answer in answers)
