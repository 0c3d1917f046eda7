"""The checks of a published folder that need no secret."""

from __future__ import annotations

from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from clusterdp._named import column, unnamed
from clusterdp._named import columns as columns_of
from clusterdp.cells.layout import AssignedGroups
from clusterdp.channels.base import Check
from clusterdp.errors import ClusterDPError, FormatError
from clusterdp.mechanisms.draw import Question, histogram_of
from clusterdp.mechanisms.settling import settle, settled_rounding
from clusterdp.outcomes.categories import together
from clusterdp.privacy.statement import rounded_up
from clusterdp.published._parquet_bytes import LONG_VALUES, ParquetBytes, writer_here
from clusterdp.published.contents import FolderView
from clusterdp.published.document import write_card, write_readme
from clusterdp.published.earlier import read_earlier
from clusterdp.published.folder import read_files, read_release, unit_files
from clusterdp.published.followup import unbound
from clusterdp.published.manifest import software_name
from clusterdp.published.rows import (
    collect_rows,
    count_released,
    count_rows,
    released_cells,
    released_row_errors,
    scan_units,
)
from clusterdp.published.signature import key_fingerprint, read_signature
from clusterdp.published.tables import cells_of_questions
from clusterdp.rows.earlier_ids import BatchIds, EarlierIds
from clusterdp.rows.keys import UnitIds, fold_numbers
from clusterdp.rows.randomizing import debiased_columns
from clusterdp.rows.value_codes import look_for_unplain
from clusterdp.spec.columns import FOLD, QUESTION, RESPONSE, debiased_names
from clusterdp.storage.folder import (
    ERRATA,
    INDEX,
    MANIFEST,
    MOST_OF_MANIFEST,
    README,
    ROWS_PER_PART,
    SIGNATURE,
    UNITS,
)
from clusterdp.storage.parquet import sum_written
from clusterdp.storage.reading import open_folder

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    import polars as pl

    from clusterdp._arrays import FloatArray
    from clusterdp.mechanisms.draw import ReleasedQuestion
    from clusterdp.spec.terms import Expected
    from clusterdp.storage.reading import Files


# Machines may add up a prior in another order.
_SAME_PRIOR = 1e-6
_SEALED = "manifest, checksums and schema"
# The checks that need other folders.
APART = "no unit is in a folder that it continues"
BOUND = "the answer is about this release"


def verify_folder(
    path: str | os.PathLike[str],
    continues: Sequence[str | os.PathLike[str]] = (),
    signed_by: bytes | None = None,
) -> list[Check]:
    """Run every check; the first ones decide whether the others can run at all.

    Args:
        path: The folder.
        continues: The folders that it continues, to check that it has none of their units.
        signed_by: The public key that it must be signed with; None for any or none.
    """
    try:
        verifier = Verifier(open_folder(path))
    except ClusterDPError as error:
        return [Check(_SEALED, str(error))]
    checks = [*verifier.checks(), *verifier.signature(signed_by)]
    if continues and all(one.problem is None for one in checks):
        checks.append(_run(APART, lambda: verifier.apart_from(continues)))
    return checks


def verify_binding(answer: str | os.PathLike[str], release: str | os.PathLike[str]) -> Check:
    """Whether an answer is about a release: its manifest, cells and outcomes."""
    return _run(
        BOUND,
        lambda: unbound(read_release(answer), read_release(release)),
    )


class Verifier:
    """The checks of a folder that could be read: its manifest, checksums and schema are sound."""

    def __init__(self, files: Files) -> None:
        """Read a folder.

        Raises:
            ClusterDPError: If it is no release, or was damaged or edited.
        """
        self.files = files
        self.release, self.manifest = read_files(files)
        self.columns, self.layout = self.release.columns, self.release.layout

    @cached_property
    def units(self) -> pl.LazyFrame:
        """The rows, as a query."""
        return scan_units(self.release)

    @cached_property
    def cells(self) -> list[pl.DataFrame]:
        """The table of cells, as each question alone would have it."""
        return cells_of_questions(self.release.cells, self.columns, self.release.questions)

    def checks(self) -> list[Check]:
        """All checks, up to the first without which others would make no sense."""
        checks = [
            Check(_SEALED, None),
            Check("the folder has no other files", self.foreign_file()),
            # Reading it refuses a guarantee that does not follow.
            Check("the guarantee matches the parameters", None),
            *self._cluster_response(),
            self.file_bytes(),
            *self.pages(),
        ]
        no_rows = self.release.units is None
        if no_rows or any((one.problem or "").endswith(LONG_VALUES) for one in checks):
            return checks  # such rows may unpack to any size
        if any(self.manifest.before_pilot):
            checks.append(_run("clips, grids and prior match the pilot histogram", self.pilot))
        for index in range(len(self.release.questions)):
            checks += self.channel(index)
        for name, check in self._row_checks().items():
            checks.append(_run(name, check))
            if checks[-1].problem is not None and check == self.filled_cells:
                break  # what follows takes rows for sound
        return checks

    def _row_checks(self) -> dict[str, Callable[[], str | None]]:
        """The checks of rows, in their order."""
        checks = {
            "rows can be read": self.readable,
            "row counts match cell sizes": self.filled_cells,
            "debiased columns match responses": self.debiased,
            "each unit has one row": self.unit_ids,
            "row counts match the groups of breakdowns": self.breakdowns,
            "folds match ids": self.folds,
        }
        if self.manifest.asking is not None:
            checks["questions match ids"] = self.questions
        if unit_files(self.manifest) != [UNITS]:
            checks["the number of row files matches the number of rows"] = self.parts
        if self.manifest.row_order == "ids":
            checks["rows are sorted by id"] = self.order
        return checks

    def foreign_file(self) -> str | None:
        """A file that is not part of the release."""
        listed = {MANIFEST, *self.manifest.files}
        for name in (ERRATA, SIGNATURE):
            if self.files.size(name) is not None and not self.files.is_link(name):
                listed.add(name)
        foreign = sorted(set(self.files.names()) - listed)
        return f"{foreign[0]} is not part of the release" if foreign else None

    def signature(self, signed_by: bytes | None) -> list[Check]:
        """Whether the manifest is signed with a key, or with its own if none is given."""
        wanted = None if signed_by is None else key_fingerprint(signed_by)
        try:
            found = read_signature(self.files)
        except FormatError as error:
            return [Check("the signature is valid", str(error))]
        if found is None:
            unsigned = f"{self.files} is not signed"
            return [] if wanted is None else [Check(f"signed with key {wanted}", unsigned)]
        problem = found.problem(self.files.read(MANIFEST, MOST_OF_MANIFEST) or b"")
        if problem is None and wanted not in {None, found.fingerprint}:
            problem = f"it is signed with key {found.fingerprint}, another one"
        name = f"signed with key {wanted or found.fingerprint}"
        # Whose key it is, nobody said.
        return [Check(name if wanted else f"{name}, which nothing else here confirms", problem)]

    def _cluster_response(self) -> list[Check]:
        """What the integers of the response of private clusters cost; nothing if public."""
        if self.manifest.labels is None:
            return []
        # A manifest whose integers are not a response is rejected before.
        cost = rounded_up(self.manifest.labels.guarantee().epsilon)
        whole = rounded_up(self.manifest.guarantee.epsilon)
        return [Check(f"private clusters cost epsilon {cost} of {whole}", None)]

    def file_bytes(self) -> Check:
        """What a Parquet file holds that no reader shows.

        Written once more by the same software, its columns must give the same bytes. Of other
        software, what pages hold next to values is not known.
        """
        others = set[str]()
        check = _run("files have no hidden content", lambda: self._hidden_bytes(others))
        if check.problem is None and others:
            wrote = " and ".join(sorted(others))
            return Check(f"{check.name} (except inside pages that {wrote} wrote)", None)
        return check

    def _hidden_bytes(self, others: set[str]) -> str | None:
        """What a file holds next to columns; adds the other software that wrote files."""
        here, rows = writer_here(), unit_files(self.manifest)
        for name in sorted(set(self.manifest.files) - {README, INDEX}):
            held = self.files.scan_parquet([name])
            content = ParquetBytes.in_folder(self.files, name)
            # Of other tables, columns were compared with those of such a release.
            is_rows = name in rows
            columns = self.columns.published if is_rows else held.collect_schema().names()
            problem = content.unexplained(columns)
            if problem is not None:
                return problem
            if content.writer != here:
                others.add(content.writer.partition(" (build")[0])
                continue
            with released_row_errors():
                if sum_written(held) != self.manifest.files[name]:
                    return f"{name} is not what {here} writes of its columns"
        return None

    def pages(self) -> list[Check]:
        """The texts for people, also where another version is said to have written them.

        A forger could claim that. So other words are a problem in either case.
        """
        manifest = self.manifest
        channels = [question.channel for question in self.release.questions]
        view = FolderView.from_parts(manifest, self.layout, channels)
        pages = {
            README: ("the README", write_readme(view, unit_files(manifest))),
            INDEX: (INDEX, write_card(view, manifest.files)),
        }
        problem = "{} is not what was published"
        if manifest.software != software_name():
            problem = (
                f"{{}} is not what {software_name()} writes, and {MANIFEST} names "
                f"{manifest.software}: its wording may differ; verify with that version"
            )
        return [
            Check.from_condition(
                f"{called} matches the manifest",
                problem.format(name),
                holds=self.files.read(name, manifest.files[name].bytes) == written.encode(),
            )
            for name, (called, written) in pages.items()
        ]

    def pilot(self) -> str | None:
        """Whether clips, grids and prior follow from the pilot."""
        release, before_pilot = self.release, self.manifest.before_pilot
        pairs = list(zip(release.questions, before_pilot, strict=True))
        spaces = together(
            [one.space if before is None else before.outcomes.categories for one, before in pairs]
        )
        declared = [
            Question(
                space=space,
                mechanism=one.mechanism
                if before is None
                else one.mechanism.with_prior(before.prior),
            )
            for (one, before), space in zip(pairs, spaces, strict=True)
        ]
        settled, manifest = settle(declared, self.layout, release.pilots), self.manifest
        stated = zip(
            release.questions,
            settled,
            manifest.expected,
            manifest.rounding,
            release.pilots,
            strict=True,
        )
        if all(
            _is_settled(question, after, expected)
            and np.allclose(settled_rounding(after, self.layout, pilot), rounding, rtol=_SAME_PRIOR)
            for question, after, expected, rounding, pilot in stated
            if pilot is not None  # without a pilot, there is nothing to compare
        ):
            return None
        return (
            "the outcomes, the prior or what is expected in manifest.json are not what "
            "pilot.parquet leads to"
        )

    def channel(self, index: int) -> list[Check]:
        """The checks of a question's channel; where there are several, they say which."""
        question = self.release.questions[index]
        assert question.channel is not None  # noqa: S101 - only called then
        histogram, arrays = histogram_of(question.statistics), question.channel.arrays()
        found = question.rows.checks(
            arrays, self.cells[index], self.layout, question.space, histogram
        )
        if len(self.release.questions) == 1:
            return found
        name = self.columns.question_names[index]
        return [one._replace(name=f"question {name}: {one.name}") for one in found]

    def readable(self) -> str | None:
        """Whether rows can be read, passthrough columns too, and whether texts can be shown."""
        import polars as pl

        collect_rows(self.units.select(pl.all().null_count()))
        named = (self.columns.unit, *self.columns.kept)
        for held in collect_rows(look_for_unplain(self.units, named)):
            if held.any():
                return f"rows have values of {held.name!r} with control characters"
        return None

    def filled_cells(self) -> None:
        """Nothing, or an error that says what is wrong."""
        count_released(self.release)

    def debiased(self) -> str | None:
        """Whether debiased outcomes are those of responses, to the last bit."""
        columns = self.columns
        several = [QUESTION] if columns.question_names else []
        # Inverses distinguish -0.0 from 0.0, which are one value otherwise.
        signs = ((1 / column(name)).alias(f"1 / {name}") for name in columns.debiased)
        held = map(column, (*columns.cell, *several, RESPONSE, *columns.debiased))
        distinct = collect_rows(self.units.select(*held, *signs).unique())
        for question, cells in zip(self.release.questions, self.cells, strict=True):
            rows, declared = distinct, question.space.declared
            if several:
                rows = distinct.filter(column(QUESTION) == question.name)
            names = debiased_names(declared.names, declared.missing)
            if rows.select(columns_of(columns.debiased)).null_count().row(0) != tuple(
                0 if name in names else len(rows) for name in columns.debiased
            ):
                return "rows have debiased values for questions that their units did not answer"
            places = (released_cells(rows, columns, self.layout), rows[RESPONSE].to_numpy())
            decoded = debiased_columns(_published_decode(question, cells), declared)
            for decode, name in zip(decoded, names, strict=True):
                # To the last bit: what is left of a number could reveal outcomes.
                found, expected = rows[name].to_numpy(), decode[places]
                signs_found = np.signbit(rows[f"1 / {name}"].to_numpy())
                if not ((found == expected) & (signs_found == np.signbit(expected))).all():
                    return f"rows have values of {name!r} that do not match their responses"
        return None

    def unit_ids(self) -> str | None:
        """Whether each unit has one row."""
        import polars as pl

        unit = column(self.columns.unit)
        counted = self.units.select(units=unit.n_unique(), gaps=unit.null_count(), rows=pl.len())
        n_units, n_gaps, n_rows = collect_rows(counted).row(0)
        if n_gaps:
            return "rows lack an id"
        return None if n_units == n_rows else "rows repeat an id"

    def breakdowns(self) -> str | None:
        """Whether groups have the stated sizes: of breakdowns, and those that were assigned."""
        import polars as pl

        arm = self.columns.arm
        arms = self.release.cells[arm].head(len(self.layout.arms)).cast(pl.String)
        for one in self.layout.breakdowns:
            *keys, counts = count_rows([self.units], [(*one.columns, arm)])[0]
            texts = (unnamed(key).cast(pl.String) for key in keys)
            found = dict(zip(zip(*texts, strict=True), counts, strict=True))
            stated = dict(zip(product(*one.labels, arms), one.sizes.ravel().tolist(), strict=True))
            if found != {group: size for group, size in stated.items() if size}:
                return f"the groups by {', '.join(one.columns)} have other sizes than stated"
        assigned, by = self.layout.assigned, self.columns.randomization_unit
        if assigned is None or by is None:
            return None
        groups, key, counts = count_rows([self.units], [(by, arm)])[0]
        if groups.n_unique() < len(groups):
            return f"groups of {by!r} have rows in several arms"
        codes = unnamed(key).cast(pl.String).cast(pl.Enum(arms)).to_physical().to_list()
        counted = AssignedGroups.from_sizes(codes, counts.to_list())
        if counted.concentrations != assigned.concentrations:
            return f"the groups of {by!r} have other sizes than stated"
        return None

    def folds(self) -> str | None:
        """Whether folds follow from ids."""
        n_folds = self.layout.folds
        if n_folds == 1:
            return None
        return self._follow_from_ids(
            FOLD,
            lambda ids, held: np.array_equal(held, fold_numbers(UnitIds(unnamed(ids)), n_folds)),
            "folds of rows do not match their ids",
        )

    def questions(self) -> str | None:
        """Whether questions follow from ids."""
        rule, names = self.release.asking, self.columns.question_names
        if rule is None:
            return None
        return self._follow_from_ids(
            QUESTION,
            lambda ids, held: rule.asks(ids, held, names),
            "questions of rows do not match their ids",
        )

    def _follow_from_ids(
        self, name: str, follows: Callable[[pl.Series, pl.Series], bool], problem: str
    ) -> str | None:
        unit = self.columns.unit
        with released_row_errors():
            for batch in self.units.select(column(unit), name).collect_batches():
                if batch[unit].null_count():
                    return "rows lack an id"
                if not follows(batch[unit], batch[name]):
                    return problem
        return None

    def apart_from(self, continues: Sequence[str | os.PathLike[str]]) -> str | None:
        """Whether these are the folders that it continues, and have none of its units."""
        earlier, own = read_earlier(continues), BatchIds()
        if {one.checksum for one in earlier} != set(self.manifest.provenance.continues or ()):
            return "the folders that were given are not those that the manifest names"
        for ids in EarlierIds("the folder", self.units.select(column(self.columns.unit))).batches():
            own.add(ids)
        own.refuse_repeated([one.ids for one in earlier], self.columns.unit)
        return None

    def parts(self) -> str | None:
        """Whether files of many machines are as many, and as long, as those of a release."""
        import polars as pl

        names = unit_files(self.manifest)
        if len(names) != -(-self.layout.n_units // ROWS_PER_PART):
            return "the number of row files does not match the number of rows"
        for name in names[:-1] if self.manifest.row_order == "table" else []:
            counted = collect_rows(self.files.scan_parquet([name]).select(pl.len()))
            if counted.item() != ROWS_PER_PART:
                return f"{name} has an unexpected number of rows"
        return None

    def order(self) -> str | None:
        """Whether ids are in order within each file: files of many machines hold them by a hash."""
        unit = column(self.columns.unit)
        for name in unit_files(self.manifest):
            rows = self.files.scan_parquet([name])
            if collect_rows(rows.select((unit < unit.shift(1)).any())).item():
                return f"{name} is not sorted by id, so its order may depend on outcomes"
        return None


def _run(name: str, check: Callable[[], str | None]) -> Check:
    """A check; what it raises is what is wrong."""
    try:
        return Check(name, check())
    except ClusterDPError as error:
        return Check(name, str(error))


def _is_settled(question: ReleasedQuestion, settled: Question, expected: Expected | None) -> bool:
    """Whether a question is what its pilot leads to."""
    priors = [np.array(one.mechanism.prior or ()) for one in (settled, question)]
    same = settled.space.record() == question.space.record() and len(priors[0]) == len(priors[1])
    same = same and bool((np.abs(priors[0] - priors[1]) < _SAME_PRIOR).all())
    return same and expected == (tuple(question.public_prior.tolist()),)


def _published_decode(
    question: ReleasedQuestion, cells: pl.DataFrame
) -> Callable[[int], FloatArray]:
    """What each response counts as in a metric, as it is published; axes `[cell, response]`."""
    channel = question.channel
    assert channel is not None  # noqa: S101 - only called then
    if question.mechanism.designs_rows:
        return lambda metric: channel.decode(metric)[channel.groups.ravel()]
    stated = np.array(cells["decode"].to_list())
    return lambda metric: stated[:, metric]
