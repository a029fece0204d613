"""The documentation says what the code does: quotes, commands, arguments, links and diagrams."""

import html
import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import imageio.v2 as iio
import numpy as np
import pytest
from docs_site import DOCS, MARKDOWN, PAGES, ROOT, build, fences, outside_fences, relative, scripts

from benchmark.variants.variant import script_of

QUOTE = re.compile(r"^\[(\w+)\.py: ([^\]]+)\]\(\.\./(\w+)\.py\)$", re.M)
DIFF = re.compile(r"^\[diff (\w+)\.py (\w+)\.py(?:: ([\w.]+))?\]\(\.\./(\w+)\.py\)$", re.M)
TEST = re.compile(r"\b(test_\w+\.py)::(test_\w+)")
LINK = re.compile(r"(!?)\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
SCRIPTS = list(scripts.EXTENDS)
# The first slow test builds the site.
pytestmark = [pytest.mark.timeout(900), pytest.mark.xdist_group("site")]


def found(pattern):
    """[(page, match)] over the pages of the documentation."""
    return [(page, m) for page in PAGES for m in pattern.finditer(page.read_text())]


def test_all_eight_scripts_are_there_to_be_quoted():
    assert len(SCRIPTS) == 8
    assert [name for name in SCRIPTS if not (ROOT / f"{name}.py").exists()] == []


# ---- Quotes ----


QUOTES = [(relative(p), m[1], m[2]) for p, m in found(QUOTE) if m[2] != "arguments"]


@pytest.mark.parametrize(("page", "script", "name"), QUOTES)
def test_every_quoted_name_exists_in_its_script(page, script, name):
    assert script in SCRIPTS, f"{page} quotes an unknown script"
    name, _, part = name.partition(" # ")
    name, _, method = name.partition(".")
    lines = [line.strip() for line in scripts.block(script, name)]
    assert lines
    for start in [f"def {method}("] * bool(method) + [f"# {part}"] * bool(part):
        assert any(line.startswith(start) for line in lines)


def build_page_with(line, folder):
    """What `build` returns for a site of one page with one link to a script."""
    for script in SCRIPTS:
        shutil.copy(ROOT / f"{script}.py", folder)
    (folder / "docs").mkdir()
    (folder / "docs" / "index.md").write_text(f"# Page\n\n[{line}](../rsac.py)\n")
    return build(folder / "docs")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("rsac.py: Actor.sampel", "Actor.sampel"),
        ("rsac.py: main # Lern", "# Lern"),
        ("rsac.py: Actor.sample # Change", "1-0"),  # methods have no parts
        ("diff sac.py rsac.py: Agnet", "Agnet"),
        ("diff sca.py rsac.py", "sca.py"),
    ],
)
def test_a_name_that_a_script_does_not_have_fails_the_build(line, wrong, tmp_path):
    _, code, output = build_page_with(line, tmp_path)
    assert code != 0
    assert wrong in output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "first", "last"),
    [
        ("rsac.py: Actor.sample", "def sample", "keepdim=True)"),
        ("rsac.py: main # Learn", "# Learn", "num_updates += 1"),
        ("diff sac.py rsac.py: SCRIPT", "--- sac.py", '+SCRIPT = "rsac"'),
        ("diff sac.py rsac.py", "--- sac.py", 'if __name__ == "__main__":'),
    ],
)
def test_a_quote_goes_from_its_first_line_to_its_last(line, first, last, tmp_path):
    folder, code, output = build_page_with(line, tmp_path)
    assert code == 0, output
    page = (folder / "index.html").read_text()
    (quote,) = re.findall(r'<div class="quoted .*?<pre>(.*?)</pre>', page, re.S)
    text = html.unescape(re.sub(r"<[^>]+>", "", quote)).strip()
    assert text.startswith(first)
    assert text.endswith(last)
    assert ("<details>" in page) == (line == "diff sac.py rsac.py")


def test_a_quote_is_replaced_only_from_the_file_that_its_link_opens():
    pairs = [(m[1], m[3]) for _, m in found(QUOTE)] + [(m[2], m[4]) for _, m in found(DIFF)]
    assert [pair for pair in pairs if pair[0] != pair[1]] == []


@pytest.mark.slow
def test_every_quoted_block_of_the_site_stands_verbatim_in_its_script():
    folder, _, _ = build()
    caption = re.compile(
        r'<div class="code-block-caption"><span class="caption-text">\s*<a [^>]*>(\w+)\.py: .*?</a>'
        r".*?<pre>(.*?)</pre>",
        re.S,
    )
    blocks = [m for page in folder.glob("*.html") for m in caption.findall(page.read_text())]
    assert len(blocks) >= len(QUOTES) > 0
    for script, code in blocks:
        text = html.unescape(re.sub(r"<[^>]+>", "", code)).strip("\n")
        lines = [line.strip() for line in text.splitlines()]
        source = [line.strip() for line in (ROOT / f"{script}.py").read_text().splitlines()]
        starts = [i for i, line in enumerate(source) if line == lines[0]]
        assert any(source[i : i + len(lines)] == lines for i in starts), text[:80]


@pytest.mark.parametrize("path", MARKDOWN, ids=relative)
def test_no_page_holds_a_pasted_copy_of_script_code(path):
    pasted = set()
    for script in SCRIPTS:
        source = "\n".join(x.strip() for x in (ROOT / f"{script}.py").read_text().splitlines())
        for _, body in fences(path.read_text()):
            lines = [line.strip() for line in body.splitlines()]
            runs = ["\n".join(lines[i : i + 4]) for i in range(len(lines) - 3)]
            pasted |= {run for run in runs if run in source and run.count("\n\n") == 0}
    assert pasted == set()


def test_every_difference_between_sac_and_rsac_is_explained():
    text = (DOCS / "from_sac_to_rsac.md").read_text()
    explained = [m[3] for m in DIFF.finditer(text) if m[3]]
    names = {*scripts.statements("sac"), *scripts.statements("rsac")}
    changed = {x for x in names if scripts.block("sac", x) != scripts.block("rsac", x)}
    assert sorted(explained) == sorted(changed)


@pytest.mark.slow
def test_every_diff_of_the_site_leads_from_one_script_to_the_other():
    folder, _, _ = build()
    # In a caption if it is of one name, in a summary if it is whole.
    shown = re.compile(r">diff (\w+)\.py (\w+)\.py: [^<]*</(?:a|summary)>.*?<pre>(.*?)</pre>", re.S)
    diffs = [m for page in folder.glob("*.html") for m in shown.findall(page.read_text())]
    assert len(diffs) == len(found(DIFF)) > 0
    for old, new, code in diffs:
        lines = html.unescape(re.sub(r"<[^>]+>", "", code)).strip("\n").splitlines()
        for script, other in ((old, "+"), (new, "-")):
            source = iter((ROOT / f"{script}.py").read_text().splitlines())
            # Names of the files and places apart. Statements of one name may lie far apart.
            kept = [line[1:] for line in lines[2:] if not line.startswith((other, "@@"))]
            missing = [line for line in kept if line not in source]  # goes on where it was
            assert missing == [], f"{script}.py in diff {old}.py {new}.py"


def test_the_map_shows_the_diff_of_every_pair_of_siblings():
    text = (DOCS / "reading.md").read_text()
    shown = {(m[1], m[2]) for m in DIFF.finditer(text) if not m[3]}
    assert shown == {(old, new) for new, old in scripts.EXTENDS.items() if old}


def test_every_test_that_a_page_names_exists():
    named = {m.groups() for _, m in found(TEST)}
    sources = {p.name: p.read_text() for p in (ROOT / "tests").glob("test_*.py")}
    assert {x for x in named if f"\ndef {x[1]}(" not in sources.get(x[0], "")} == set()


# ---- Arguments ----


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_every_argument_of_a_script_is_in_the_table_of_its_page(script):
    folder, _, _ = build()
    page = (folder / f"{script}.html").read_text()
    cells = set(re.findall(r"<td>.*?</td>", page, re.S))
    # Read from the source, not from the parser that made the table.
    source = (ROOT / f"{script}.py").read_text()
    source += (ROOT / "common" / "cli.py").read_text()
    flags = set(re.findall(r'\badd\(\s*"(--[\w-]+)"', source))
    assert {"--seed", "--env-id", "--lr"} <= flags
    missing = {flag for flag in flags if not any(f">{flag}<" in cell for cell in cells)}
    assert missing == set()


# ---- Commands ----


def command_lines(text):
    """Lines that start a Python program, in fenced shell blocks and in inline code."""
    lines = []
    for language, body in fences(text):
        if language in {"", "bash", "sh", "console", "shell", "text"}:
            lines += body.replace("\\\n", " ").splitlines()
    lines += re.findall(r"`(python [^`\n]+)`", outside_fences(text))
    start = re.compile(r"(?:exec |until |[A-Z_]+=\S* )*(?:\.venv/bin/)?python3? (.*)")
    parts = [part for line in lines for part in re.split(r"&&|\|\||[|;]", line)]
    parts = [re.sub(r'"?\$[A-Z_]+"?', "0", part.strip().removeprefix("$ ")) for part in parts]
    found = [start.fullmatch(part) for part in parts]
    return [shlex.split(match[1], comments=True) for match in found if match]


COMMANDS = [
    (relative(path), tuple(words))
    for path in MARKDOWN
    for words in dict.fromkeys(map(tuple, command_lines(path.read_text())))
]


@pytest.mark.parametrize(("page", "words"), COMMANDS, ids=[" ".join(c[1]) for c in COMMANDS])
def test_every_command_line_is_accepted_by_the_parser_it_is_for(page, words):
    if f"As `{words[0]}`:" in (ROOT / page).read_text():
        pytest.skip("a program that the page holds; it has a test of its own")
    # A page that copies a script may go on to run the copy.
    copies = re.findall(r"^cp (\w+\.py) (\w+\.py)$", (ROOT / page).read_text(), re.M)
    copies = {copy: original for original, copy in copies}
    parse = parser_for((copies.get(words[0], words[0]), *words[1:]))
    if parse is None:  # a program of others, such as pip, or one without arguments
        return
    if "--help" in words:
        words = tuple(word for word in words if word != "--help")
    program_arguments = list(words[2:] if words[0] == "-m" else words[1:])
    try:
        args = parse(program_arguments)
        # What stands after `--` goes to the script, or to those of a sweep.
        names = getattr(args, "scripts", None) or [getattr(args, "script", None)]
        for name in filter(None, names if "--" in words else []):
            script = copies.get(f"{name}.py", name).removesuffix(".py")
            rest = program_arguments[program_arguments.index("--") + 1 :]
            scripts.parse_args_of(script)(rest)
    except SystemExit as error:
        pytest.fail(f"{page}: exit code {error.code}")


def parser_for(words):
    if words[0] == "-m":
        name = words[1]
        if not (ROOT / name.split(".")[0]).is_dir():
            return None
        spec = importlib.util.find_spec(name)
        assert spec is not None, f"there is no module {name}"
        if spec.submodule_search_locations:  # a package: `python -m envs`
            name = f"{name}.__main__"
        module = importlib.import_module(name)
        return getattr(module, "parse_args", None)
    if words[0].startswith("-") or not words[0].endswith(".py"):
        return None
    script = words[0].removesuffix(".py")
    if script.startswith("benchmark/variants/") and (ROOT / words[0]).exists():
        script = script_of(script)  # it takes the arguments of its script
    if script in SCRIPTS:
        return scripts.parse_args_of(script)
    assert (ROOT / words[0]).exists(), f"{words[0]} does not exist"
    if Path(words[0]).parts[0] == "benchmark":
        return parser_for(("-m", script.replace("/", ".")))
    return None


@pytest.mark.parametrize(
    "line",
    [
        "CUDA=1 python sac.py --total-stepz 5 | tail  # quick",
        "until python rsac.py --resume runs/a --total-stepz 5; do sleep 1; done",
        'exec python -m benchmark.sweep --index "$K" --scripts sac --env-ids e -- --total-stepz 5',
        "python -m benchmark.sweep --scriptz sac --env-ids e -- --total-steps 5",
    ],
)
def test_a_misspelt_argument_in_a_command_line_is_noticed(line):
    (words,) = command_lines(f"```bash\n{line}\n```")
    with pytest.raises(pytest.fail.Exception, match="exit code 2"):
        test_every_command_line_is_accepted_by_the_parser_it_is_for("README.md", tuple(words))


QUICK = sorted({words for _, words in COMMANDS if "--help" in words or words[:2] == ("-m", "envs")})


@pytest.mark.parametrize("words", QUICK, ids=" ".join)
def test_the_quick_command_lines_run(words, tmp_path):
    here = [str(tmp_path / Path(w).name) if re.search(r"\.(png|mp4|gif)$", w) else w for w in words]
    if any("bumps" in word for word in words):
        pytest.importorskip("pybullet", reason="pybullet has no wheel here")
    assert run(ROOT, *here).strip() or here != list(words)
    for mine, named in zip(here, words, strict=True):
        if named.startswith("docs/"):  # a picture of the page: its command draws it again
            drawn, committed = (np.asarray(iio.imread(path)) for path in (mine, ROOT / named))
            assert drawn.shape == committed.shape
            # The same scene; its shades are those of the OpenGL library here.
            assert np.corrcoef(drawn.ravel(), committed.ravel())[0, 1] > 0.9
        elif mine != named:
            assert Path(mine).stat().st_size > 0


def test_reading_the_arguments_of_a_script_does_not_import_torch():
    code = "import sys; sys.path[:0] = ['docs/_ext']; import scripts; scripts.parser_of('rsac'); "
    code += "print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr


# ---- Worked examples ----

SMALL = ["--num-threads", "1", "--hidden-dims", "8", "--rnn-dim", "8", "--eval-episodes", "1"]


def run(folder, *command, errors=False):
    """What the command prints, with what it prints to stderr if `errors`."""
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, capture_output=True, text=True, timeout=850
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout + done.stderr * errors


@pytest.fixture
def workplace(tmp_path):
    """A folder with what a script needs beside it."""
    for name in ("common", "envs", "benchmark"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copy(ROOT / "rsac.py", tmp_path)
    return tmp_path


@pytest.mark.slow
def test_following_the_page_on_new_algorithms_gives_one_that_runs_and_passes_its_test(workplace):
    page = (DOCS / "your_own_algorithm.md").read_text()
    source = (ROOT / "rsac.py").read_text()
    hunks = [body.splitlines() for language, body in fences(page) if language == "diff"]
    for hunk in hunks:
        before = "".join(f"{line[1:]}\n" for line in hunk if not line.startswith("+"))
        after = "".join(f"{line[1:]}\n" for line in hunk if not line.startswith("-"))
        assert source.count(before) == 1, f"rsac.py does not have once: {before}"
        source = source.replace(before, after)
    (workplace / "rsac_huber.py").write_text(source)
    for style in (["check"], ["format", "--check"]):
        command = [sys.executable, "-m", "ruff", *style, "--stdin-filename", "rsac_huber.py", "-"]
        done = subprocess.run(command, cwd=ROOT, input=source, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    (test,) = [body for language, body in fences(page) if language == "python"]
    call = "\ntest_errors_beyond_delta_count_linearly()\n"
    (workplace / "by_hand.py").write_text(test + call)
    run(workplace, "by_hand.py")
    (quick,) = [words for words in command_lines(page) if "--learning-starts" in words]
    output = run(workplace, *quick[: quick.index("--run-dir")], "--huber-delta", "1", *SMALL)
    assert "rsac_huber.py --evaluate runs/" in output


@pytest.mark.slow
def test_following_the_tour_prints_lines_of_the_form_that_it_shows(workplace):
    shown, printed = [], []
    for language, body in fences((DOCS / "tour.md").read_text()):
        if language == "text":
            shown += body.splitlines()
        elif language == "diff":
            old, new = (f"{line[1:]}\n" for line in body.splitlines())
            source = (workplace / "rsac.py").read_text()
            assert source.count(old) == 1
            (workplace / "rsac_forgets.py").write_text(source.replace(old, new))
        elif language == "python":
            printed += run(workplace, "-c", body, errors=True).splitlines()
        elif body.startswith("python "):
            words = shlex.split(body.replace("10_000", "60"))[1:]
            first = ["--learning-starts", "30", "--eval-every", "30", *SMALL]
            words += first if "--run-dir" in words else []
            printed += run(workplace, *words, errors=True).splitlines()
    shown, printed = (
        {re.sub(r"[-+]?\d[\d.,e]*", "#", x) for x in lines} for lines in (shown, printed)
    )
    assert {line for line in shown if "step/s" not in line} <= printed
    assert (workplace / "film.gif").stat().st_size > 0


@pytest.mark.slow
def test_following_the_page_on_new_environments_gives_one_that_trains(workplace):
    page = (DOCS / "your_own_environment.md").read_text()
    code = [body for language, body in fences(page) if language == "python"]
    recall, check, positions = code
    (workplace / "recall.py").write_text(recall)
    (workplace / "check.py").write_text(check)
    run(workplace, "check.py")
    first = next(w for w in command_lines(page) if "recall:Recall-v0" in w)
    short = ["--total-steps", "60", "--learning-starts", "30", "--eval-every", "30"]
    output = run(workplace, *first[: first.index("--total-steps")], *short, *SMALL)
    assert "rsac.py --evaluate runs/recall_Recall-v0__rsac__0__" in output
    make = 'print(gym.make("HopperP-v0").reset(seed=0)[0].shape)\n'
    (workplace / "positions.py").write_text(positions + make)
    assert run(workplace, "positions.py").strip() == "(5,)"


@pytest.mark.slow
def test_following_the_page_on_long_runs_gives_one_run_and_its_film(workplace):
    page = (DOCS / "long_runs.md").read_text()
    tiny = {"50000": "60", "5000": "30", "100000": "90", "20": "1"}
    first = ["--learning-starts", "30", "--eval-every", "30", *SMALL]
    for line in command_lines(page):
        words = [tiny.get(word, word) for word in line]
        run(workplace, *words, *(first if "--run-dir" in words else []))
    rows = (workplace / "runs/long/progress.csv").read_text().splitlines()[1:]
    assert [row.split(",")[0] for row in rows] == ["0", "30", "60", "90"]
    assert (workplace / "film.gif").stat().st_size > 0


def test_the_python_example_of_the_page_of_questions_draws_curves(tmp_path):
    page = (DOCS / "faq.md").read_text()
    (code,) = [body for language, body in fences(page) if language == "python"]
    for seed in (0, 1):
        folder = tmp_path / "runs" / f"pendulum-p-v0__rsac__{seed}__20260101-000000"
        folder.mkdir(parents=True)
        rows = "".join(f"{500 * i},{i - 1000 * seed}\n" for i in range(4))
        (folder / "progress.csv").write_text(f"global_step,eval_return_mean\n{rows}")
    run(tmp_path, "-c", code)
    assert (tmp_path / "curve.png").stat().st_size > 0


def test_the_python_example_of_the_page_of_environments_runs():
    page = (DOCS / "environments/index.md").read_text()
    (code,) = [body for language, body in fences(page) if language == "python"]
    assert run(ROOT, "-c", f"{code}\nprint(env.reset(seed=0)[0].shape)").strip() == "(2,)"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sb3_sac.py", "sb3_recurrent_ppo.py"])
def test_the_programs_of_the_page_on_other_libraries_learn_our_tasks(name, tmp_path, monkeypatch):
    page = (DOCS / "other_libraries.md").read_text()
    _, _, rest = page.partition(f"As `{name}`:")
    assert rest, name
    code = next(body for language, body in fences(rest) if language == "python")
    for many, few in (("10_000", "150"), ("n_eval_episodes=10", "n_eval_episodes=1")):
        assert code.count(many) == 1
        code = code.replace(many, few)
    (tmp_path / name).write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # as the page has it, started elsewhere
    assert [name] in command_lines(page)
    assert re.search(r"return -\d+ \+- 0", run(tmp_path, name))


def test_the_first_example_of_the_page_on_other_libraries_runs(tmp_path, monkeypatch):
    page = (DOCS / "other_libraries.md").read_text()
    code = next(body for language, body in fences(page) if language == "python")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    assert run(tmp_path, "-c", f"{code}\nprint(obs.shape, info)").strip() == "(2,) {}"


def test_the_python_example_of_the_debugging_page_runs():
    (code,) = [
        b for language, b in fences((DOCS / "debugging.md").read_text()) if language == "python"
    ]
    assert "rsac" in code
    assert "(rnn): Memory(" in run(ROOT, "-c", code)


# ---- Links and figures ----


def slug(heading):
    """GitHub's anchor of a heading."""
    text = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


@pytest.mark.parametrize("path", MARKDOWN, ids=relative)
def test_every_link_of_a_markdown_file_leads_to_a_file_and_heading_of_the_repository(path):
    broken = []
    for _, target in LINK.findall(outside_fences(path.read_text())):
        if re.match(r"https?:|mailto:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / unquote(name)).resolve() if name else path
        if not file.exists() or ROOT not in file.parents:
            broken.append(target)
        elif anchor and file.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", outside_fences(file.read_text()), re.M)
            if anchor not in map(slug, headings):
                broken.append(target)
    assert broken == []


class Page(HTMLParser):
    """Collects ids, links and what a browser would load."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.loads = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.ids.add(values.get("id"))
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        if tag in {"script", "img", "iframe", "source", "video"} and values.get("src"):
            self.loads.append(values["src"])
        if tag == "link" and values.get("rel") in {"stylesheet", "icon", "preload"}:
            self.loads.append(values["href"])


@pytest.mark.slow
def test_the_site_builds_without_a_warning():
    _, code, output = build()
    assert code == 0, output[-3000:]


@pytest.mark.slow
def test_options_keep_both_of_their_dashes():
    folder, _, _ = build()
    assert [path.name for path in folder.rglob("*.html") if "\N{EN DASH}" in path.read_text()] == []


@pytest.mark.slow
def test_every_internal_link_and_anchor_of_the_site_resolves():
    folder, _, _ = build()
    pages = {path.resolve(): Page(path.read_text()) for path in folder.rglob("*.html")}
    assert len(pages) > 10
    broken = []
    for path, page in pages.items():
        for link in page.links + page.loads:
            if re.match(r"https?:|mailto:|data:|javascript:", link):
                continue
            name, _, anchor = link.partition("#")
            file = (path.parent / unquote(name.partition("?")[0])).resolve() if name else path
            missing = anchor and file in pages and unquote(anchor) not in pages[file].ids
            if not file.exists() or missing:
                broken.append((path.name, link))
    assert broken == []


@pytest.mark.slow
def test_the_site_loads_nothing_from_the_network():
    folder, _, _ = build()
    pages = [Page(path.read_text()) for path in folder.rglob("*.html")]
    assert [load for page in pages for load in page.loads if re.match(r"(https?:)?//", load)] == []
    styles = "".join(path.read_text() for path in folder.rglob("*.css"))
    assert re.findall(r"url\(['\"]?(?:https?:)?//|@import", styles) == []


def test_every_figure_drawn_by_code_is_used_and_is_what_the_code_draws(tmp_path):
    matplotlib = pytest.importorskip("matplotlib")
    import diagrams

    drawn = {path.name: path for path in diagrams.draw_all(tmp_path)}
    text = "".join(path.read_text() for path in MARKDOWN)
    assert {name for name in drawn if f"_static/{name}" not in text} == set()
    for name, path in drawn.items():
        committed = (DOCS / "_static" / name).read_text()
        if f"Matplotlib v{matplotlib.__version__}" in committed:
            assert committed == path.read_text(), f"{name} is old; run python docs/diagrams.py"


def crossed(figure):
    """Texts of a diagram that are cut off, stick out of their box, or lie on something else."""
    figure.canvas.draw()
    (ax,) = figure.axes
    texts = [text for text in ax.texts if text.get_text()]
    texts = [(text.get_text(), text.get_window_extent().padded(1.5)) for text in texts]  # points
    boxes = [patch.get_window_extent() for patch in ax.patches]
    # Arrows are texts without words.
    strokes = [*ax.lines, *(t.arrow_patch for t in ax.texts if getattr(t, "arrow_patch", None))]
    paths = [stroke.get_path().transformed(stroke.get_transform()) for stroke in strokes]
    pieces = [type(path)(p) for path in paths for p in path.to_polygons(closed_only=False)]
    found = []
    for i, (text, extent) in enumerate(texts):
        x, y = (extent.x0 + extent.x1) / 2, (extent.y0 + extent.y1) / 2
        within = [box for box in boxes if box.contains(x, y)] or [figure.bbox]
        others = [box for box in boxes if box not in within]
        others += [other for k, (_, other) in enumerate(texts) if k != i]
        inside = all(box.contains(*extent.min) and box.contains(*extent.max) for box in within)
        through = any(piece.intersects_bbox(extent, filled=False) for piece in pieces)
        if not inside or through or any(extent.overlaps(other) for other in others):
            found.append(text)
    return found


def test_no_text_of_a_diagram_is_cut_off_or_lies_on_another():
    pytest.importorskip("matplotlib")
    import diagrams

    unreadable = {}
    with diagrams.plt.rc_context(diagrams.STYLE):
        for name, draw in diagrams.FIGURES.items():
            figure = draw()
            if len(figure.axes) == 1:  # the others are plots, which Matplotlib lays out
                unreadable |= {name: found} if (found := crossed(figure)) else {}
            diagrams.plt.close(figure)
    assert unreadable == {}


def test_the_scoreboard_has_the_small_type_of_wide_tables():
    columns = int(re.search(r"th:nth-child\((\d+)\)", (DOCS / "_static/docs.css").read_text())[1])
    head = (DOCS / "results.md").read_text().partition("| task |")[2].partition("\n")[0]
    assert 1 + head.count("|") >= columns
