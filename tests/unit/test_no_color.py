"""Who sets NO_COLOR gets text alone from both tools: no color, no bold, no moving bar."""

from __future__ import annotations

import pytest

from tests.support.screen import seen_on_a_terminal

ESCAPE = "\x1b"
SIMULATE = ("simulate", "--data", "simulated", "--repeat", "1", "--no-baselines")


@pytest.mark.slow
def test_a_terminal_has_a_bar_unless_it_is_to_have_no_color() -> None:
    assert ESCAPE in seen_on_a_terminal("learner", *SIMULATE)
    plain = seen_on_a_terminal("learner", *SIMULATE, NO_COLOR="1")
    assert ESCAPE not in plain
    assert "dp_gd: accuracy 0." in plain


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tool", "arguments", "word"),
    [
        ("learner", ("--help",), "Usage"),
        ("learner", ("submit",), "Missing argument"),
        ("learner", ("list", "--url", "http://127.0.0.1:1"), "the token is empty"),
        ("party", ("--help",), "Usage"),
        ("party", ("audit", "--nothing"), "No such option"),
        ("party", ("check", "--config", "/missing.toml"), "/missing.toml"),
    ],
)
def test_no_color_is_no_escape_code(tool: str, arguments: tuple[str, ...], word: str) -> None:
    told = seen_on_a_terminal(tool, *arguments, NO_COLOR="1", PARLEY_TOKEN="", PARLEY_TOKEN_FILE="")
    assert word in told
    assert ESCAPE not in told
