"""How the pages are written: habits of prose are counted, and pages keep to their length.

Tables, code, formulas and the pages of results are not prose.
"""

import re
from pathlib import Path

import pytest

PAGES = Path(__file__).resolve().parents[2] / "docs/pages"
TEXTS = {path.relative_to(PAGES).as_posix(): path.read_text() for path in PAGES.rglob("*.md")}
SECTIONS = sorted({name.partition("/")[0] for name in TEXTS})
RATES = {"semicolons": (";", 3.0), "figures": (r"(?<![\w.-])-?\d[\d.,]*", 15.0)}
"""What is counted, and how many 1,000 words of a section may have."""
WORDS = {
    "explanation": 8_700, "how-to": 21_200, "learners": 12_000, "reference": 16_900,
    "tutorials": 5_950,
}  # fmt: skip
"""Words of the pages of a section, tables and code too. A goal not reached yet: 19,200 words of
how-to, to which pages on JAX, change sheets and simulators came with 1,300."""
PATHS = {"A plant engineer": 9_000, "A contributor": 12_000}
"""Words of the pages that the home page tells a reader to read in turn."""
ALL_WORDS = 70_000
"""Words of all pages that a person reads; generated help and results are not among them."""
LONGEST = 40
"""Words of a sentence."""
OUTSIDE = {
    "a path of the repository": r"(?<![./\w])(?:tools|tests|packages|docs)/\w",
    "a test": r"\btest_\w+\.py|::test_",
    "a date": r"\b\d{1,2} (?:January|February|March|April|May|June|July|August|September"
    r"|October|November|December) \d{4}\b",
}
"""What a page for users has no use for."""
OF_A_CLONE = {"contributing.md", "how-to/install.md"}
"""Pages for those who work in a clone."""
WORDS_TO_AVOID = {
    "incumbent": "today's controller", "surely": "significantly", "in view": "say what was chosen",
}  # fmt: skip


def without_code(text: str) -> str:
    text = re.sub(r"```.*?```|<!--.*?-->", "", text, flags=re.DOTALL)
    return re.sub(r"(?m)^    .*$", "", text)


def prose(text: str) -> str:
    """Paragraphs and items; code in a line counts as one word."""
    text = re.sub(r"\$\$.*?\$\$", "", without_code(text), flags=re.DOTALL)
    lines = ["" if re.match(r"\s*[|#!<:]", line) else line for line in text.splitlines()]
    text = re.sub(r"(?m)^\s*(?:[-*]|\d+\.) ", "\n", "\n".join(lines))
    text = re.sub(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])", r"\1", text)
    return re.sub(r"`[^`]*`|\$[^$]*\$", "CODE", text)


def sentences(text: str) -> list[str]:
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", prose(text))]
    return [one for part in paragraphs for one in re.split(r"(?<=[.!?:])\s+(?=[A-Z*“\"])", part)]


def section(name: str) -> str:
    return "\n\n".join(text for page, text in TEXTS.items() if page.partition("/")[0] == name)


@pytest.mark.parametrize("habit", RATES)
@pytest.mark.parametrize("name", [name for name in SECTIONS if "." not in name])
def test_a_section_has_few_of_a_habit(name: str, habit: str) -> None:
    pattern, goal = RATES[habit]
    text = prose(section(name))
    rate = 1000 * len(re.findall(pattern, text)) / len(text.split())
    assert rate <= goal, f"{rate:.1f} in 1,000 words"


@pytest.mark.parametrize("name", WORDS)
def test_a_section_keeps_to_its_length(name: str) -> None:
    words = sum(len(text.split()) for page, text in TEXTS.items() if page.startswith(f"{name}/"))
    assert words <= WORDS[name]


def test_all_pages_keep_to_their_length() -> None:
    assert sum(len(text.split()) for text in TEXTS.values()) <= ALL_WORDS


@pytest.mark.parametrize("reader", PATHS)
def test_the_way_of_a_reader_keeps_to_its_length(reader: str) -> None:
    """A contributor reads the pages of a researcher first."""
    home = re.sub(r"\s+", " ", TEXTS["index.md"])
    ways = dict(re.findall(r"\*\*(A [\w ]+)\*\* (reads.+?\.)(?= \*\*| \|)", home))
    text = ways[reader]
    if "what a researcher reads" in text:
        text += ways["A researcher"]
    pages = set(re.findall(r"\]\(([\w/-]+\.md)\)", text))
    assert len(pages) >= 5
    assert sum(len(TEXTS[page].split()) for page in pages) <= PATHS[reader]


@pytest.mark.parametrize("page", sorted({*TEXTS} - {"index.md"}))  # The index lists pages.
def test_a_page_reads_at_first_go(page: str) -> None:
    long = [one for one in sentences(TEXTS[page]) if len(one.split()) > LONGEST]
    assert not long, long
    text = prose(TEXTS[page])
    for word, better in WORDS_TO_AVOID.items():
        assert not re.search(rf"\b{word}\b", text), f"{word}: {better}"


@pytest.mark.parametrize("page", sorted({*TEXTS} - OF_A_CLONE))
def test_a_page_for_users_names_nothing_of_the_repository(page: str) -> None:
    for what, pattern in OUTSIDE.items():
        assert not re.findall(pattern, without_code(TEXTS[page])), what


def test_prose_is_counted_without_tables_code_and_formulas() -> None:
    text = (
        "# One; two\n\nIt is 5; `a; b` too, and $x; y$.\n\n| 1; 2 | 3 |\n\n```python\n4; 5\n```\n\n"
        "    code; 6\n\n$$7; 8$$\n\n- First. Second; [link; 9](a;b)\n"
    )
    assert prose(text).count(";") == 3
    assert re.findall(r"\d", prose(text)) == ["5", "9"]
    assert max(len(one.split()) for one in sentences(text)) == 7
