"""The pages for readers, by section: what they show is executed, and compared with the results, by tests."""

import re
from pathlib import Path

from tests.environment import ROOT

FOLDERS = ("", "releg", "lightning_modules", "results", "data", "tests")
PAGES = [ROOT / folder / "README.md" for folder in FOLDERS]


def section(folder: str, title: str) -> str:
    """The text under a title of a folder's README; without a title, what comes before the first one."""
    text = (ROOT / folder / "README.md").read_text(encoding="utf-8")
    return (text.split(f"\n## {title}\n")[1] if title else text).split("\n## ")[0]


def numbers(text: str) -> set[str]:
    """All numbers like 1.5, 200,000 and 10⁵, except in links, tables and code."""
    text = re.sub(r"\]\([^)]*\)|^\|[^\n]*|^```.*?^```|`[^`\n]*`", "]", text, flags=re.MULTILINE | re.DOTALL)
    return set(re.findall(r"(?<![\w./:-])(?:\d+\.\d+|\d{1,3}(?:,\d{3})+|10[⁰-⁹]+)(?![\w/])", text))


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
