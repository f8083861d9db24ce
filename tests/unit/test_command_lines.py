"""A small tool with the command line that all share: what it prints, where, and how it ends."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner, Result

from parley.common import parley_version
from parley.common.errors import InvalidInputError, ParleyError, UnavailableError
from parley.common.service.commands import (
    CommandGroup,
    CommandLine,
    ExitCode,
    FormatOption,
    Printer,
    deferred,
    load_extensions,
    print_json_line,
    read_budgets,
    read_cohort,
    read_parameters,
    refusal_is_no,
    split_pair,
    tool_options,
    ungrouped,
    without_rich,
)


@dataclass(frozen=True)
class Where:
    """A group of options."""

    url: Annotated[str, typer.Option(help="where it is")]
    port: Annotated[int, typer.Option(help="its port")] = 80


FAILURES: dict[str, Exception] = {
    "input": InvalidInputError("é is wrong"),
    "away": UnavailableError("nobody answers"),
    "extra": ModuleNotFoundError("No module named 'onnx'", name="onnx"),
    "module": ModuleNotFoundError("No module named 'nobodys'", name="nobodys"),
    "file": FileNotFoundError(2, "No such file or directory", "/a/b"),
    "disk": OSError(28, "No space left on device"),
    "odd": TimeoutError(),
}


def small() -> CommandLine:
    """A tool with two commands."""
    tool = CommandLine("a small tool", name="small", cls=CommandGroup, callback=tool_options)

    @tool.command("show")
    def show(name: str, where: Where, printer: Printer) -> None:
        """Show where something is."""
        printer.result({"name": name, "at": [where.url, where.port]}, [f"{name} is at", f"{where.url}:{where.port}"])
        printer.next("small fail")

    @tool.command()
    def fail(kind: str, output: FormatOption = "text") -> None:
        """Fail."""
        assert output in {"text", "json"}
        if kind == "no":
            with refusal_is_no():
                raise UnavailableError("it is not ready")
        raise FAILURES[kind]

    return tool


def run(*words: str) -> Result:
    return CliRunner().invoke(small(), list(words))


def test_a_group_of_options_is_options_of_the_command() -> None:
    done = run("show", "it", "--url", "here", "--port", "7")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "it is at\nhere:7\n", "next: small fail\n")
    done = run("show", "it", "--url", "here", "--format", "json")
    assert (done.exit_code, done.stdout, done.stderr) == (0, '{"name": "it", "at": ["here", 80]}\n', "")
    missing = run("show", "it")
    assert (missing.exit_code, "Missing option '--url'" in missing.stderr) == (ExitCode.MISUSED, True)
    helped = run("show", "--help").stdout
    assert all(word in helped for word in ("where it is", "[default: 80]", "--format", "Show where something is."))
    assert "a small tool" in run().output
    shown = run("--version")
    assert (shown.exit_code, shown.stdout) == (0, f"small {parley_version()}\n")


def test_a_function_without_groups_is_taken_as_it_is() -> None:
    def plain(name: str) -> str:
        return name

    assert ungrouped(plain) is plain


@pytest.mark.parametrize(
    ("kind", "code", "words", "problem"),
    [
        ("input", ExitCode.FAILED, "é is wrong", "invalid-input"),
        ("away", ExitCode.UNREACHABLE, "nobody answers", "unavailable"),
        ("file", ExitCode.FAILED, "/a/b: No such file or directory", "invalid-input"),
        ("disk", ExitCode.FAILED, "input or output: No space left on device", "invalid-input"),
        ("odd", ExitCode.FAILED, "input or output: TimeoutError", "invalid-input"),
        ("no", ExitCode.NO, "it is not ready", "unavailable"),
    ],
)
def test_a_foreseen_error_is_a_line_and_an_exit_code(kind: str, code: int, words: str, problem: str) -> None:
    done = run("fail", kind)
    assert (done.exit_code, done.stdout, done.stderr) == (code, "", f"small: {words}\n")
    done = run("fail", kind, "--format", "json")
    told = f'{{"error": {json.dumps(words, ensure_ascii=False)}, "type": "{problem}"}}\n'
    assert (done.exit_code, done.stdout, done.stderr) == (code, "", told)


def test_a_missing_package_is_named_only_if_it_is_one_of_an_extra() -> None:
    extra = run("fail", "extra")
    words = "small: this command needs pip install 'parley-learning[export]'\n"
    assert (extra.exit_code, extra.stderr) == (ExitCode.FAILED, words)
    assert isinstance(run("fail", "module").exception, ModuleNotFoundError)


def printed(capsys: pytest.CaptureFixture[str], work: Callable[[], object]) -> tuple[str, str]:
    work()
    output = capsys.readouterr()
    return output.out, output.err


def test_a_printer_speaks_to_people_or_to_programs(capsys: pytest.CaptureFixture[str]) -> None:
    people, program = Printer(), Printer("json")
    value = {"é": np.arange(2)}
    assert (people.is_json, program.is_json) == (False, True)
    assert printed(capsys, lambda: people.result(value, "a line")) == ("a line\n", "")
    assert printed(capsys, lambda: people.result(value, iter(["a", "b"]))) == ("a\nb\n", "")
    assert printed(capsys, lambda: people.result(value, lambda: typer.echo("made"))) == ("made\n", "")
    assert printed(capsys, lambda: program.result(value, "a line")) == ('{"é": [0, 1]}\n', "")
    assert printed(capsys, lambda: people.done("done", count=1)) == ("done\n", "")
    assert printed(capsys, lambda: program.done("done", count=1)) == ('{"count": 1}\n', "")
    assert printed(capsys, lambda: people.next("small x")) == ("", "next: small x\n")
    assert printed(capsys, lambda: program.next("small x")) == ("", "")
    assert printed(capsys, lambda: people.aside("by the way")) == ("", "by the way\n")
    assert printed(capsys, lambda: print_json_line(["é", None])) == ('["é", null]\n', "")


def test_what_is_typed_is_read_in_its_form() -> None:
    assert read_parameters(None) == read_parameters([]) == {}
    assert read_parameters(["a=1", 'b={"c": [2]}', "d=x=y", "e=", "f=NaN"]) == {
        "a": 1,
        "b": {"c": [2]},
        "d": "x=y",
        "e": "",
        "f": "NaN",
    }
    assert read_budgets(None) == {}
    assert read_budgets(["a=1,0.5", "b=2,0"]) == {
        "a": {"epsilon": 1.0, "delta": 0.5},
        "b": {"epsilon": 2.0, "delta": 0.0},
    }
    assert read_cohort(None) is None
    assert read_cohort("2,3,4.5,6") == {"least": 2, "most": 3, "seconds": 4.5, "owner_hours": 6.0}
    assert read_cohort("2") == {"least": 2}
    assert split_pair("a=b=c") == ("a", "b=c")
    assert split_pair("a=") == ("a", "")


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (lambda: read_parameters(['a={"b": 1, "b": 2}']), "a: a name is twice in an object of its JSON"),
        (lambda: read_budgets(["a=1"]), "the budget of a must be EPSILON,DELTA, not '1'"),
        (lambda: read_budgets(["a=1,x"]), "the budget of a must be EPSILON,DELTA, not '1,x'"),
        (lambda: split_pair("a"), "'a' must be NAME=VALUE"),
        (lambda: split_pair("=a"), "'=a' must be NAME=VALUE"),
        *[
            (lambda text=text: read_cohort(text), f"a cohort must be LEAST[,MOST[,SECONDS[,HOURS]]], not {text!r}")
            for text in ("", "x", ",2", "1,2,3,4,5", "1,,,,", "1,x")
        ],
    ],
)
def test_what_is_typed_in_another_form_is_refused(read: Callable[[], Any], words: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        read()
    assert refused.value.detail == words


def test_a_deferred_module_is_loaded_when_it_is_first_used(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ANN401
    (tmp_path / "loaded_late.py").write_text("import sys\nsys.modules['it_was_loaded'] = sys\nANSWER = 42\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = list(sys.meta_path)
    try:
        with deferred():
            import loaded_late  # type: ignore[import-not-found]  # noqa: PLC0415 -- as modules of commands do

            with pytest.raises(ModuleNotFoundError):
                import nobody_has_this  # type: ignore[import-not-found]  # noqa: F401, PLC0415 -- as above
        assert sys.meta_path == before
        assert "it_was_loaded" not in sys.modules
        assert loaded_late.ANSWER == 42
        assert "it_was_loaded" in sys.modules
    finally:
        sys.modules.pop("it_was_loaded", None)
        sys.modules.pop("loaded_late", None)


def test_rich_is_not_there_within_the_block_unless_it_was_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "rich", raising=False)
    with without_rich():
        assert sys.modules["rich"] is None
    assert "rich" not in sys.modules
    there: Any = object()
    monkeypatch.setitem(sys.modules, "rich", there)
    with without_rich():
        assert sys.modules["rich"] is there
    assert sys.modules["rich"] is there


def test_a_refusal_that_is_an_answer_keeps_its_words() -> None:
    error = ParleyError("no")
    with pytest.raises(Exception, match=r"^no$") as answer, refusal_is_no():
        raise error
    assert vars(answer.value)["error"] is error


def test_a_command_has_the_name_that_it_is_given_and_can_be_called_by_programs() -> None:
    tool, said = small(), list[str]()

    @tool.command("tell", help="told otherwise")
    def say(word: str) -> str:
        """Say a word."""
        said.append(word)
        return word

    assert tool(["tell", "this"], standalone_mode=False) == "this"
    helped = CliRunner().invoke(tool, ["tell", "--help"]).stdout
    assert ("told otherwise" in helped, "Say a word" in helped) == (True, False)
    assert (tool.pretty_exceptions_enable, tool.rich_markup_mode) == (False, None)
    assert say("that") == "that"
    assert said == ["this", "that"]


def test_the_options_of_a_group_stand_for_it_in_the_signature() -> None:
    def show(name: Annotated[str, "a name"], where: Where) -> None:
        """Nothing."""

    command = ungrouped(show)
    parameters = inspect.signature(command).parameters
    assert list(parameters) == ["name", "url", "port"]
    assert {each.kind for each in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}
    assert [each.default for each in parameters.values()] == [inspect.Parameter.empty] * 2 + [80]
    assert parameters["name"].annotation == Annotated[str, "a name"]
    assert parameters["url"].annotation.__metadata__[0].help == "where it is"
    assert command.__annotations__ == {name: each.annotation for name, each in parameters.items()}


def test_extensions_are_imported_in_turn_and_one_that_is_not_there_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    imported: list[str] = []
    lacking: dict[str, str | None] = {}

    def load(name: str) -> None:
        imported.append(name)
        if name in lacking:
            raise ModuleNotFoundError("no", name=lacking[name])

    monkeypatch.setattr("parley.common.service.commands.import_module", load)
    monkeypatch.delenv("PARLEY_EXTENSIONS", raising=False)
    load_extensions()
    monkeypatch.setenv("PARLEY_EXTENSIONS", " one.two, three ,,")
    load_extensions()
    assert imported == ["one.two", "three"]
    for missing in ("one", "one.two"):
        lacking["one.two"] = missing
        with pytest.raises(SystemExit) as ended:
            load_extensions()
        assert ended.value.code == ExitCode.FAILED
        words = "parley: PARLEY_EXTENSIONS names one.two, and there is no such module\n"
        assert capsys.readouterr() == ("", words)
    for other in ("on", "numpy", None):
        lacking["one.two"] = other
        with pytest.raises(ModuleNotFoundError):
            load_extensions()
