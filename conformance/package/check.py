"""`parity check PACKAGE`: every digest and every stated value computed again from it alone, without torch or jax."""

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from conformance.causes import likely_causes
from conformance.certificate import NAME as CERTIFICATE
from conformance.certificate import read_certificate
from conformance.contract.digest import sha256_file, sha256_tree
from conformance.contract.errors import ContractError
from conformance.contract.progress import Progress, Speaker
from conformance.package.build import SUITE
from conformance.package.contents import Contents, contents_of
from conformance.package.layout import MANIFEST, STATED, Manifest, read_manifest
from conformance.package.stated import Leaf, differs, read_stated, stated
from conformance.report import forms
from conformance.summary import ALL_PASS, CHECK_FAILED

SHOWN = 40  # differences that are printed
ABSENT = "absent"
FIGURE = re.compile(r"<figure>.*?</figure>\n", re.DOTALL)  # drawn by matplotlib, whose versions write other paths
NO_DRAWINGS = dict.fromkeys(forms.SECTIONS, ())


@dataclass(frozen=True, slots=True)
class Difference:
    name: str
    stated: Leaf
    again: Leaf

    def __str__(self) -> str:
        """In characters that a terminal only shows: a name is whatever the package says."""
        return f"{''.join(filter(str.isprintable, self.name))}: stated {self.stated!r}, computed {self.again!r}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """`values`: how many there are, stated or computed; `files`, `other`: what else does not hold; `notes`: what to know."""

    values: int
    differences: tuple[Difference, ...]
    files: tuple[str, ...]
    other: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return not (self.differences or self.files or self.other)


def run(options: argparse.Namespace) -> int:
    outcome = check(options.package, Speaker("check"))
    for line in lines(outcome):
        print(line)
    return ALL_PASS if outcome.holds else CHECK_FAILED


def check(folder: Path, progress: Progress) -> Outcome:
    """What cannot be opened at all is a difference of every value."""
    folder = folder.resolve()
    manifest = read_manifest(folder)
    progress(f"{len(manifest.files)} digests")
    for name, digest in manifest.left_out.items():
        if not (folder / name).is_file():
            raise ContractError(f"package {folder}: {name} was too large to be packed: put the file there (sha256 {digest})")
    files = tuple(changed_files(folder, manifest))
    try:
        known, unread = read_stated(folder / STATED) if (folder / STATED).is_file() else {}, ()
    except ContractError as error:  # edited: its digest tells so too
        known, unread = {}, (str(error).replace(f"{folder}/", ""),)
    progress(f"{len(known):,} values")
    try:
        contents = contents_of(folder)
    except ContractError as error:
        reason = f"nothing could be computed again: {str(error).replace(f'{folder}/', '')}"
        lost = tuple(Difference(name, value, ABSENT) for name, value in known.items())
        return Outcome(len(known), lost, files, (*unread, reason), ())
    again = stated(contents.facts)
    names = dict.fromkeys([*known, *again])
    found = (Difference(name, known.get(name, ABSENT), again.get(name, ABSENT)) for name in names)
    differences = tuple(one for one in found if differs(one.stated, one.again))
    return Outcome(len(names), differences, files, (*unread, *_other(folder, contents)), tuple(_notes(manifest)))


def lines(outcome: Outcome) -> Iterator[str]:
    yield from outcome.files
    yield from outcome.other
    for one in outcome.differences[:SHOWN]:
        yield str(one)
    if len(outcome.differences) > SHOWN:
        yield f"and {len(outcome.differences) - SHOWN:,} more"
    yield from outcome.notes
    others = len(outcome.files) + len(outcome.other)
    yield f"{len(outcome.differences):,} of {outcome.values:,} stated values differ" + (f"; {others} other problems" if others else "")


def changed_files(folder: Path, manifest: Manifest) -> Iterator[str]:
    """Missing, edited, foreign ones, and links."""
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_symlink() or path.is_file()}
    for name, digest in manifest.files.items():
        if name not in found:
            yield f"{name}: missing"
        elif found[name].is_symlink():
            yield f"{name}: a symbolic link"
        elif sha256_file(found[name]) != digest:
            yield f"{name}: not the file that was packed (sha256 differs)"
    for name, digest in manifest.left_out.items():
        if sha256_file(folder / name) != digest:
            yield f"{name}: not the file that was left out (sha256 differs)"
    yield from (f"{name}: not in {MANIFEST}" for name in sorted(set(found) - {*manifest.files, *manifest.left_out, MANIFEST}))


def _other(folder: Path, contents: Contents) -> Iterator[str]:
    """Certificate and pages, which are digested but state values too."""
    known = read_certificate(folder / CERTIFICATE) if (folder / CERTIFICATE).is_file() else None
    again = contents.inputs.certificate
    if known is None or again is None:
        if known != again:
            yield f"{CERTIFICATE}: " + ("there, but the findings give none: " + "; ".join(contents.refused) if known else "missing")
    else:
        keys = [key for key in sorted({*known, *again}) if known.get(key) != again.get(key) and key != "suite"]
        yield from (f"{CERTIFICATE}: {key} is not what the bundles give" for key in keys)
    again = forms.page(contents.inputs, likely_causes, contents.facts, NO_DRAWINGS)
    written = {forms.NAME: again, forms.ONE_PAGE: forms.one_page(contents.facts), forms.MARKDOWN: forms.markdown(contents.facts)}
    for name, text in written.items():
        if not (folder / name).is_file() or FIGURE.sub("", (folder / name).read_text(encoding="utf-8", errors="replace")) != text:
            yield f"{name}: its text is not what the values give"


def _notes(manifest: Manifest) -> Iterator[str]:
    if manifest.code_sha256 != sha256_tree(SUITE):
        by = f"{manifest.suite}, {manifest.code_sha256[:12]}, {manifest.made}"
        yield f"note: packed by other code of the suite ({by}): texts may differ"
