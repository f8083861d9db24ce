"""Plain English: code, documents and pages do without the words that `words.toml` lists."""

from __future__ import annotations

from scripts.benchmarks.house import ROOT, listed_lines, text_paths


def test_the_listed_words_are_not_used() -> None:
    lines = listed_lines(ROOT, text_paths(ROOT))
    assert not lines, "\n".join([f"{len(lines)} lines have a word of tests/unit/words.toml:", *lines])
