"""Budgets. A ledger tracks what releases about the same people cost in total.

It rejects a release that would exceed the cap, before any outcome is read. It also keeps what is
needed to finish an interrupted release: its key and what it drew.

`Ledger` (`ledger.py`) is the public class. Its entries are in a store (`_store.py`); `history`
reads them and checks their hashes; `balance` is what a population has left; `statement` shows it. A
`reservation` is a release whose budget is spent, until it is published or given up; `_encryption`
protects its key. `paid_release` reserves, writes and commits a release.
"""
