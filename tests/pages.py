"""The pages for readers, by section: what they show is executed, and compared with the results, by tests."""

import re
from pathlib import Path

from tests.environment import ROOT

FOLDERS = ("", "releg", "lightning_modules", "results", "data", "tests")
PAGES = [ROOT / folder / "README.md" for folder in FOLDERS]


def section(folder: str, title: str) -> str:
    """The text under a title of a folder's README."""
    return (ROOT / folder / "README.md").read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]


def paragraph(folder: str, words: str) -> str:
    """The paragraph or list item of a folder's README that has these words, in one line."""
    text = (ROOT / folder / "README.md").read_text(encoding="utf-8")
    parts = [" ".join(part.split()) for part in re.split(r"\n\n|\n(?=[-|] )", text)]
    (found,) = (part for part in parts if words in part)
    return found


def decimals(text: str) -> set[str]:
    """The numbers with a decimal point in a text: those that were measured. Links do not count."""
    return set(re.findall(r"(?<![\w./-])\d+\.\d+(?![\w/])", re.sub(r"\]\([^)]*\)", "]", text)))


def blocks(text: str, language: str) -> list[str]:
    """The blocks of code in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def broken_links(page: Path) -> list[str]:
    """Links to files that are not there."""
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    of_files = [link for link in links if "://" not in link and not link.startswith("../../actions/")]  # GitHub's
    return [link for link in of_files if not (page.parent / link).is_file()]


def link_weights(folder: Path) -> None:
    """Let examples that run in a folder find the published weights where the pages say."""
    (folder / "results").mkdir()
    (folder / "results" / "weights").symlink_to(ROOT / "results" / "weights")
