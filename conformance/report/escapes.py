"""Text of a bundle inside Markdown and LaTeX: nothing in it may be read as markup. Templates' own words are not touched."""

import re
from typing import Any

from markupsafe import Markup

MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+!|~$-])")
LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
    '"': r"\textquotedbl{}", "`": r"\textasciigrave{}", "-": r"{-}", "[": "{[}", "*": "{*}",
    "\u2009": r"\,", "–": r"\textendash{}", "·": r"\textperiodcentered{}", "×": r"\texttimes{}", "±": r"\textpm{}",
    "µ": r"\textmu{}", "→": r"\textrightarrow{}", "“": r"\textquotedblleft{}", "”": r"\textquotedblright{}",
    "√": r"\textsurd{}", "≤": r"\ensuremath{\leq}", "≥": r"\ensuremath{\geq}",
}  # fmt: skip


def markdown(value: Any) -> str:
    """One line; HTML and GitHub's mentions and references of issues are plain text too."""
    if isinstance(value, Markup):
        return str(value)
    text = " ".join(str(value).split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return MARKDOWN.sub(r"\\\1", text).replace("@", "@\u200b").replace("://", ":\u200b//")


def latex(value: Any) -> str:
    """One line; an option of the line break before it is none, in braces. Characters that plain LaTeX lacks are shown by their code."""
    if isinstance(value, Markup):
        return str(value)
    return "".join(LATEX.get(character) or _latex(character) for character in " ".join(str(value).split(" ")))


def _latex(character: str) -> str:
    if character.isspace():
        return " "
    if character.isascii() and character.isprintable():
        return character
    return rf"\texttt{{U+{ord(character):04X}}}"
