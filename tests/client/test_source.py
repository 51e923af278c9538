"""Documents as people write them: every trap of YAML and JSON, with path, line and fix."""

import io
import json
import sys
import time
from pathlib import Path

import pytest
from support.documents import VALID

from headbay.client.source import Loaded, load, read_document
from headbay.domain.document import DocumentRefusedError, Problem, digest

STEP = "steps:\n- name: a\n  run: x\n"


def refused(text, name="ci.yaml"):
    """The message of a refused document."""
    raw = text if isinstance(text, bytes) else text.encode()
    with pytest.raises(DocumentRefusedError) as caught:
        read_document(raw, name=name)
    assert all(problem.line is not None for problem in caught.value.problems if problem.path)
    return str(caught.value)


def read(text, name="ci.yaml"):
    """The data of an accepted document."""
    return read_document(text if isinstance(text, bytes) else text.encode(), name=name).data


def env(value):
    """The value that `A` has in the environment of a step, written as ``value``."""
    return read(f"name: w\nsteps:\n- name: a\n  run: x\n  env:\n    A: {value}\n")["steps"][0][
        "env"
    ]["A"]


# -- the issue of naming what is wrong ---------------------------------------------------------


def test_an_unknown_field():
    text = refused("name: w\nsteps:\n- name: a\n  run: x\n  depends_on: b\n")
    assert text == (
        "ci.yaml:5: steps[0].depends_on: unknown field 'depends_on'; did you mean `dependsOn`?"
    )


def test_a_duplicate_key():
    text = refused("name: w\nsteps:\n- name: a\n  run: x\n\n  run: y\n")
    assert text == (
        "ci.yaml:6: steps[0].run: 'run' is already written on line 4; remove one of the two"
    )


def test_every_duplicate_key_is_reported():
    text = refused("name: w\nname: v\nsteps:\n- {name: a, run: x, run: y, env: {A: a, A: b}}\n")
    assert [line.split(": ")[:2] for line in text.splitlines()] == [
        ["ci.yaml:2", "name"],
        ["ci.yaml:4", "steps[0].run"],
        ["ci.yaml:4", "steps[0].env.A"],
    ]


def test_a_cycle():
    text = refused(f"name: w\n{STEP}  dependsOn: b\n- name: b\n  run: x\n  dependsOn: a\n")
    assert text == (
        "ci.yaml:5: steps[0].dependsOn: steps wait for each other: a -> b -> a; "
        "remove one of these dependencies"
    )


def test_a_self_dependency():
    text = refused("name: w\nsteps:\n- name: a\n  run: x\n  dependsOn: [a]\n")
    assert text == "ci.yaml:5: steps[0].dependsOn[0]: 'a' depends on itself; remove it"


def test_an_unknown_dependency():
    text = refused(
        "name: w\nsteps:\n- name: build\n  run: x\n- name: t\n  run: x\n  dependsOn:\n  - biuld\n"
    )
    assert text == ("ci.yaml:8: steps[1].dependsOn[0]: unknown step 'biuld'; did you mean 'build'?")


def test_impossible_resources():
    text = refused(f"name: w\n{STEP}  resources:\n    cpu: -1\n    memory: 4GB\n    mem: 3\n")
    assert text.splitlines() == [
        'ci.yaml:6: steps[0].resources.cpu: -1 is negative; write CPUs such as 2, 0.5 or "250m"',
        "ci.yaml:7: steps[0].resources.memory: 'GB' is not a unit of memory; did you mean 4G?",
        "ci.yaml:8: steps[0].resources.mem: unknown resource 'mem'; did you mean `memory`?",
    ]


# -- what YAML 1.2 says --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("on", "on"),
        ("off", "off"),
        ("no", "no"),
        ("yes", "yes"),
        ("y", "y"),
        ("N", "N"),
        ("2030-01-31", "2030-01-31"),
        ("12:30:45", "12:30:45"),
        ("1_000", "1_000"),
        ("0b101", "0b101"),
        ("3.10.1", "3.10.1"),
        ("1e", "1e"),
        ('"3.10"', "3.10"),
        ("'null'", "null"),
        ("!!str 3.10", "3.10"),
        ("'a: #b'", "a: #b"),
        ('"\\u00e9\\t"', "é\t"),
    ],
)
def test_what_is_a_string_in_yaml_1_2_survives(written, value):
    assert env(written) == value


@pytest.mark.parametrize("key", ["on", "no", "yes", "off", "y", "n", "true", "null", "NO"])
def test_keys_are_what_is_written(key):
    assert read(f"name: w\n{STEP}  env:\n    {key}: x\n")["steps"][0]["env"] == {key: "x"}
    assert f"ci.yaml:2: {key}: unknown field '{key}'" in refused(f"name: w\n{key}: x\n{STEP}")


def test_a_number_as_a_key_is_what_is_written():
    assert read(f"name: w\nlabels:\n  3.10: x\n  010: y\n{STEP}")["labels"] == {
        "3.10": "x",
        "010": "y",
    }


@pytest.mark.parametrize(
    "written",
    ["3.10", "1", "0o17", "017", "0x1F", "1e3", "-1", ".5", "1.", "true", "False", "TRUE", ".inf"],
)
def test_what_is_no_string_must_be_quoted_as_it_is_written(written):
    text = refused(f"name: w\n{STEP}  env:\n    OK: x\n    A: {written}\n")
    assert text.startswith("ci.yaml:7: steps[0].env.A: ")
    if written != ".inf":
        assert text.endswith(f'{written}; quote it: "{written}"')


@pytest.mark.parametrize("written", ["", "~", "null", "Null"])
def test_a_null_in_the_environment_must_be_quoted(written):
    text = refused(f"name: w\n{STEP}  env:\n    A: {written}\n")
    assert text == (
        'ci.yaml:6: steps[0].env.A: must be a string, not null; quote it: "null", or "" for empty'
    )


def test_octal_is_what_yaml_1_2_says():
    assert read(f"name: w\npriority: 0o17\n{STEP}")["priority"] == 15
    assert read(f"name: w\npriority: 017\n{STEP}")["priority"] == 17
    assert read(f"name: w\npriority: 0x1f\n{STEP}")["priority"] == 31


@pytest.mark.parametrize("written", ["0.1000000000000000000001", "1e999", "1" * 41, "1e-400"])
@pytest.mark.parametrize("name", ["ci.yaml", "ci.json"])
def test_numbers_are_exact_or_refused(written, name):
    text = '{"name": "w",\n"steps": [\n{"name": "a",\n"run": "x",\n"timeout": N}]}'
    message = refused(text.replace("N", written), name)
    assert message.startswith(f"{name}:5: steps[0].timeout: ")
    assert "too long or too large to be exact" in message
    assert message.endswith("quote or shorten it")


def test_a_decimal_fraction_is_exactly_what_is_written():
    step = read_document(f"name: w\n{STEP}  resources: {{cpu: 0.1}}\n".encode()).dag().steps[0]
    assert step.resources["cpu"] == 100


def test_anchors_and_aliases_work_within_bounds():
    data = read(
        "name: w\ndefaults:\n  env: &e {A: x}\nsteps:\n- name: a\n  run: &r make\n  env: *e\n"
        "- name: b\n  run: *r\n"
    )
    assert data["steps"][0]["env"] == {"A": "x"}
    assert data["steps"][1]["run"] == "make"


def test_a_problem_inside_an_alias_has_the_alias_s_line():
    text = refused("name: w\ndefaults:\n  env: &e {A: 1}\nsteps:\n- name: a\n  run: x\n  env: *e\n")
    assert [line.split(": ")[:2] for line in text.splitlines()] == [
        ["ci.yaml:3", "defaults.env.A"],
        ["ci.yaml:7", "steps[0].env.A"],
    ]


def test_anchors_that_explode():
    lines = ["name: w", "labels:", f"  a: &a [{', '.join(['x'] * 10)}]"]
    for before, this in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"  {this}: &{this} [{', '.join([f'*{before}'] * 10)}]")
    started = time.monotonic()
    text = refused("\n".join(lines))
    assert time.monotonic() - started < 5
    assert text.startswith("ci.yaml:8: labels.f")
    assert text.endswith(
        "more than 200000 values, what aliases stand for counted; split the workload"
    )


def test_an_alias_of_itself():
    text = refused("name: w\nlabels: &l\n  a: *l\n")
    assert text.startswith("ci.yaml:3: labels.a: the alias *l stands for nothing that is finished")
    assert "unknown" not in refused("name: w\nlabels: *nothing\n")


@pytest.mark.parametrize(
    ("tag", "shown"),
    [
        ("!!python/object/apply:os.system", "!!python/object/apply:os.system"),
        ("!include", "!include"),
        ("!!int", "!!int"),
        ("!!binary", "!!binary"),
        ("!!set", "!!set"),
    ],
)
def test_tags_construct_nothing(tag, shown):
    text = refused(f"name: w\nqueue: {tag} x\n{STEP}")
    assert text == (
        f"ci.yaml:2: queue: the tag {shown} is not allowed; "
        "remove it, and quote the value if it is a text"
    )


def test_merge_keys_are_no_part_of_yaml_1_2():
    text = refused(f"name: w\n{STEP}  <<: {{timeout: 5m}}\n")
    assert text == (
        "ci.yaml:5: steps[0]['<<']: YAML 1.2 has no merge keys (`<<`); "
        "write what is meant, or use `defaults`"
    )


@pytest.mark.parametrize("key", ["[a, b]", "{a: b}", "? [a]\n", "*x"])
def test_keys_are_texts(key):
    text = refused(f"name: &x w\nlabels:\n  {key} : x\n")
    assert text.startswith("ci.yaml:3: labels: ")
    assert "as a key; write a text as key" in text


def test_a_second_document():
    text = refused(f"name: w\n{STEP}---\nname: v\n")
    assert text == "ci.yaml:5: a second document; keep one in a file"
    assert read(f"---\nname: w\n{STEP}...\n")["name"] == "w"


def test_another_version_of_yaml():
    assert refused(f"%YAML 1.1\n---\nname: w\n{STEP}") == (
        "ci.yaml:2: documents are YAML 1.2; remove the %YAML line"
    )
    assert read(f"%YAML 1.2\n---\nname: w\n{STEP}")["name"] == "w"


# -- texts that are broken -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["name: w\nsteps:\n\t- name: a\n", "name: w\nsteps:\n- name: a\n\trun: x\n"]
)
def test_tabs_as_indentation(text):
    line = text.split("\t")[0].count("\n") + 1
    message = refused(text)
    assert message.startswith(f"ci.yaml:{line}: ")
    assert message.endswith("a tab where YAML allows only spaces; indent with spaces")


def test_tabs_inside_a_script_survive():
    data = read("name: w\nsteps:\n- name: a\n  run: |\n    cat <<E\n    \tx\n    E\n")
    assert data["steps"][0]["run"] == "cat <<E\n\tx\nE\n"


def test_a_utf_8_byte_order_mark_changes_nothing():
    plain = f"name: w\n{STEP}".encode()
    assert read_document(b"\xef\xbb\xbf" + plain).digest == read_document(plain).digest
    as_json = json.dumps(VALID).encode()
    assert read_document(b"\xef\xbb\xbf" + as_json, name="x.json").digest == digest(VALID)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-16-be"])
def test_byte_order_marks_of_other_encodings(encoding):
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    text = refused((mark + f"name: w\n{STEP}").encode(encoding))
    assert text.startswith("ci.yaml:1: UTF-")
    assert text.endswith("not UTF-8; save the file as UTF-8")


def test_crlf_changes_nothing():
    unix = "name: w\nsteps:\n- name: a\n  run: |\n    x\n    y\n"
    windows = unix.replace("\n", "\r\n")
    assert read(windows) == read(unix)
    assert refused(windows + "zzz: 1\r\n").startswith("ci.yaml:7: zzz: unknown field")
    assert refused((unix + "zzz: 1\n").replace("\n", "\r")).startswith("ci.yaml:7: zzz: ")


def test_a_nul():
    assert refused("name: w\nqueue: a\0b\n") == "ci.yaml:2: contains a NUL character; remove it"
    text = refused(f'name: w\nqueue: "a\\0b"\n{STEP}')
    assert text == "ci.yaml:2: queue: contains a NUL character; remove it"


def test_what_is_not_utf_8():
    assert refused(b"name: w\nqueue: caf\xe9\n") == (
        "ci.yaml:2: not UTF-8: byte 0xe9; save the file as UTF-8"
    )


def test_control_characters():
    assert refused("name: w\nqueue: a\x07\n").startswith(
        "ci.yaml:2: the control character U+0007; remove it"
    )


def test_half_a_character():
    text = refused(f'name: w\nqueue: "\\ud800"\n{STEP}')
    assert text.startswith("ci.yaml:2: queue: contains half a surrogate pair")


def test_2_mib():
    text = refused("name: w\nsteps:\n" + "- name: a\n  run: x\n" * ((2 << 20) // 19))
    assert text.startswith("ci.yaml: more than 1048576 bytes; move long scripts into files")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ci.yaml", "name: w\nlabels: " + "[" * 100_000),
        ("ci.yaml", "name: w\nlabels: " + "{a: " * 100_000),
        ("ci.yaml", "name: w\nlabels:\n  " + "- " * 100_000),
        ("ci.json", '{"name": "w",\n"labels": ' + "[" * 100_000),
        ("ci.json", '{"name": "w",\n"labels": ' + '{"a":' * 100_000),
    ],
)
def test_deep_nesting(name, text):
    message = refused(text, name)
    assert message.startswith((f"{name}:2: ", f"{name}:3: "))
    assert message.endswith("nested deeper than 64 levels; flatten it")


@pytest.mark.parametrize("text", ["", "\n", "  \n", "# nothing\n", "---\n", "--- # x\n...\n"])
def test_an_empty_file(text):
    message = refused(text)
    assert message.startswith(("ci.yaml:1: ", "ci.yaml:2: "))
    assert message.endswith("the document is empty; write at least `steps:`")


@pytest.mark.parametrize("text", ["- a\n", "hello\n", "3\n", '"x"\n', "[]\n"])
def test_a_root_that_is_no_mapping(text):
    assert refused(text) == (
        "ci.yaml:1: the document must be a mapping; begin with `name:` and `steps:`"
    )


@pytest.mark.parametrize(
    ("text", "line", "fix"),
    [
        ("name: w\nsteps:\n- name: a\n  run: a: b\n", 4, "quote the text, or correct the ind"),
        ("name: w\nsteps:\n- name: a\n run: x\n", 4, "align it with the lines above"),
        ("name: w\nqueue: @x\n", 2, "put the text into quotes"),
        ("name: w\nqueue: `x`\n", 2, "put the text into quotes"),
        ("name: w\nqueue: 'x\n", 3, "close them"),
        ("name: w\nlabels: {a: b\nsteps: []\n", 3, "close it, or add the comma"),
        ("name: w\njust a line\nqueue: x\n", 3, "correct the indentation"),
        ("name: w\nlabels: *x\n", 2, "write the value out"),
        ("name: w\n: x\n", 2, "write the key before the `:`"),
        ('name: w\nqueue: "\\q"\n', 2, "correct this line"),
        ('name: w\nqueue: "\\UFFFFFFFF"\n', 2, "stray character or escape"),
    ],
)
def test_broken_yaml(text, line, fix):
    message = refused(text)
    assert message.startswith(f"ci.yaml:{line}: ")
    assert fix in message
    assert "\n" not in message


# -- JSON ----------------------------------------------------------------------------------------


def test_json_and_yaml_of_the_same_content_are_the_same_document():
    text = (
        "apiVersion: headbay/v1\nname: w\nsteps:\n- name: a\n  run: 'é'\n  timeout: 90\n"
        "  resources: {cpu: 0.5}\n"
    )
    data = {
        "steps": [{"resources": {"cpu": 0.5}, "timeout": 90, "run": "é", "name": "a"}],
        "name": "w",
        "apiVersion": "headbay/v1",
    }
    digests = {
        read_document(text.encode(), name="w.yaml").digest,
        read_document(json.dumps(data).encode(), name="w.json").digest,
        read_document(json.dumps(data, indent=1, ensure_ascii=False).encode()).digest,
        read_document(data).digest,
    }
    assert len(digests) == 1


def test_json_is_read_as_json_says():
    text = '{"name": "w", "steps": [{"name": "a", "run": "\\ud83d\\ude00 \\/ \\u0041"}]}'
    assert read(text, "w.json")["steps"][0]["run"] == "😀 / A"
    assert read("\n\t" + text, "-")["steps"][0]["run"] == "😀 / A"


def test_flow_style_yaml_is_not_taken_for_json():
    assert read("{name: w, steps: [{name: a, run: x}]}")["name"] == "w"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (
            '{"name": "w",\n "name": "v"}',
            2,
            "name: 'name' is already written on line 1; remove one",
        ),
        ('{"name": "w",\n}', 2, "found `}`; remove the comma before it"),
        ('{"steps": [1,\n]}', 2, "found `]`; remove the comma before it"),
        ("{name: 1}", 1, "expected a key in double quotes, found `n`; quote the key"),
        ('{"name" 1}', 1, "expected `:` after the key, found `1`; add it"),
        ('{"name": w}', 1, "expected a value, found `w`; quote strings with double quotes"),
        ('{"name": NaN}', 1, "expected a value, found `N`"),
        ('{"name": "w"', 1, "expected `,` or `}`, found the end of the file"),
        ('{"name": "w"}\n{}', 2, "something follows the end of the document, found `{`; remove it"),
        ('{"name": "w\n"}', 1, "not a JSON string: invalid control character"),
        ('{"name": "w', 1, "not a JSON string: unterminated string"),
        ('{"name": "\\x"}', 1, "not a JSON string: invalid \\escape"),
        ("", 1, "expected a value, found the end of the file"),
        ('{"priority": 01}', 1, "expected `,` or `}`, found `1`"),
    ],
)
def test_broken_json(text, line, message):
    found = refused(text, "ci.json")
    assert found.startswith(f"ci.json:{line}: ")
    assert message in found


def test_json_problems_have_lines():
    text = refused('{"name": "w",\n"steps": [\n  {"name": "a",\n   "runn": "x"}]}', "ci.json")
    assert text.splitlines() == [
        "ci.json:3: steps[0].run: `run` is missing; add `run: make test`",
        "ci.json:4: steps[0].runn: unknown field 'runn'; did you mean `run`?",
    ]


# -- where documents come from -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "name"),
    [("ci.yaml", "ci"), ("my job (2).yml", "my-job-2"), ("-x-.json", "x"), ("a" * 90, "a" * 63)],
)
def test_the_name_is_the_file_s_stem(tmp_path, file, name):
    path = tmp_path / file
    path.write_text('{"steps": [{"name": "a", "run": "x"}]}')
    found = read_document(path)
    assert found.document.name == name
    assert found.data == {
        "apiVersion": "headbay/v1",
        "name": name,
        "steps": [{"name": "a", "run": "x"}],
    }
    assert found.digest == digest(found.data)
    assert found.dag().name == name
    assert read_document(str(path)).data == found.data


def test_a_file_that_cannot_be_read(tmp_path):
    for path, reason in ((tmp_path / "no.yaml", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(DocumentRefusedError) as caught:
            read_document(path)
        assert str(caught.value).startswith(f"{path}: cannot be read: {reason}")
    with pytest.raises(DocumentRefusedError, match="cannot be read: embedded null byte"):
        read_document(Path("a\0b"))


def test_no_more_of_a_file_is_read_than_may_be_in_it():
    with pytest.raises(DocumentRefusedError, match="/dev/zero: more than 1048576 bytes"):
        read_document(Path("/dev/zero"))


def test_standard_input(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(f"{STEP}zzz: 1\n".encode()))
    monkeypatch.setattr(sys, "stdin", stream)
    with pytest.raises(DocumentRefusedError, match="standard input:4: zzz: unknown field"):
        read_document("-")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(STEP.encode())))
    assert read_document(Path("-")).document.name == "stdin"


def test_bytes_and_data_have_no_name_of_their_own():
    with pytest.raises(DocumentRefusedError, match="`name` is missing; add `name: my-name`"):
        read_document(STEP.encode())
    with pytest.raises(DocumentRefusedError, match="`name` is missing"):
        read_document({"steps": [{"name": "a", "run": "x"}]})


def test_parsed_data_is_taken_as_it_is():
    loaded = load(VALID)
    assert loaded.document == VALID
    assert load(loaded) is loaded
    assert Loaded.of(VALID).document is VALID
    assert read_document(Loaded.of(VALID)).data == VALID


def test_loading_judges_nothing():
    loaded = load(b"zzz: 1\nsteps: 3\n")
    assert loaded.document == {"zzz": 1, "steps": 3}
    assert loaded.lines == {"": 1, "zzz": 1, "steps": 2}


def test_a_path_that_is_not_written_gets_the_line_around_it():
    loaded = load(b"name: w\nsteps:\n- name: a\n- name: b\n")
    for path, line in (("steps[1].run", 4), ("steps[1]", 4), ("steps[7].x[3].y", 2), ("z", 1)):
        assert loaded.located(Problem(path=path, code="X", message="m")).line == line


def test_warnings_have_lines():
    (warning,) = read_document(
        f"name: w\n{STEP}- name: b\n  run: x\n  env: {{T: {{secret: s}}}}\n".encode()
    ).warnings
    assert (warning.path, warning.line) == ("steps[1]", 5)


def test_a_long_document_is_read_in_good_time():
    steps = [f"- name: s{n}\n  run: make\n  env: {{A: b}}\n" for n in range(1024)]
    started = time.monotonic()
    found = read_document(f"name: w\nsteps:\n{''.join(steps)}".encode())
    assert len(found.dag().steps) == 1024
    assert time.monotonic() - started < 10
