"""The house rules that imports must keep: one direction, no cycles, and post-processing that cannot reach the data."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import margrave

PACKAGE = Path(margrave.__file__).parent

# Rooms from the ground up: a module may import rooms below its own, its own room, and nothing above.
FLOORS = [
    {"escaping"},
    {"errors"},
    {"discrete_gaussian", "options", "memory"},
    {"files"},
    {"algebra", "privacy", "domain"},
    {"workload", "measurements", "data"},
    {"reconstruction", "synthesis"},
    {"planning", "methods"},
    {"boundary", "release"},
    {"mechanisms", "custodian"},
    {"job"},
    {"cli"},
    {"__init__", "__main__"},
]
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
# The sub-rooms of data/, in the same way.
DATA_FLOORS = [
    {"redaction", "read_only"},
    {"kinds", "persons", "encoding"},
    {"engines"},
    {"counting"},
    {"source"},
    {"detection"},
    {"draft", "validation"},
]
# Plans are made before data is opened, or from noisy values.
POST_PROCESSING = ("planning", "reconstruction", "synthesis", "methods", "release")
PRIVATE = ("data", "boundary", "mechanisms", "custodian", "job")
# The town of the demo, rows from published tables and the errors of published counts: seeded draws, never noise.
MADE_UP = ("cli.town", "synthesis.made_up_draws")
# Budgets are plain numbers; all else in the privacy room draws, or charges for, what only the boundary may.
PUBLIC_PRIVACY = ("privacy", "privacy.budget")


def module_name(path):
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def imports(path):
    """All modules of the package that a file imports anywhere in it, late imports included."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide where a name lives"
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    own = {name.removeprefix("margrave").lstrip(".") for name in found if name.split(".")[0] == "margrave"}
    return {name for name in own if name in MODULES}


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
GRAPH = {name: imports(path) - {name} for name, path in MODULES.items()}


def room(name):
    return name.split(".")[0]


@pytest.mark.parametrize("name", MODULES)
def test_every_module_has_a_floor_and_imports_point_down(name):
    assert room(name) in FLOOR_OF, f"{name} stands in no room of the house"
    for imported in GRAPH[name]:
        if room(imported) != room(name) and room(name) != "__init__":
            assert FLOOR_OF[room(imported)] < FLOOR_OF[room(name)], f"{name} must not import {imported}"


def test_within_data_imports_point_down_too():
    floor_of = {part: floor for floor, parts in enumerate(DATA_FLOORS) for part in parts}
    for name in MODULES:
        if room(name) == "data" and name != "data":
            part = name.split(".")[1]
            for imported in GRAPH[name]:
                below = imported.split(".")[1] if imported.startswith("data.") else part
                assert below == part or floor_of[below] < floor_of[part], f"{name} must not import {imported}"


def test_the_list_of_what_a_reviewer_reads_names_files_that_exist():
    guarantee = (Path(__file__).parents[1] / "docs" / "guarantee.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:[a-z_]+/)+(?:[a-z_]+\.py)?|boundary\.py)`", guarantee)
    assert {"data/", "privacy/", "mechanisms/", "boundary.py"} <= set(named)
    assert not [name for name in named if not (PACKAGE / name).exists() and not (PACKAGE.parents[1] / name).exists()]


def test_no_module_imports_itself_through_others():
    done, path = set(), []

    def visit(name):
        assert name not in path, f"cycle: {' → '.join([*path[path.index(name) :], name])}"
        if name in done:
            return
        path.append(name)
        for imported in GRAPH[name]:
            visit(imported)
        path.pop()
        done.add(name)

    for name in GRAPH:
        visit(name)


def eager_imports(path):
    """All modules of the package that are imported when a file is: not inside functions, not for types alone."""

    def visit(node):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import | ast.ImportFrom):
                yield child
            elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
                yield from (inner for part in child.orelse for inner in visit(ast.Module([part], [])))
            elif not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                yield from visit(child)

    found = set()
    for node in visit(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        else:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            modules = {name for name in inner if name.removeprefix("margrave.") in MODULES}
            found |= modules | ({node.module} if modules != inner else set())
    return {name.removeprefix("margrave.") for name in found} & MODULES.keys()


def test_the_house_has_few_modules_in_few_layers():
    """A module stands one layer above the highest that it imports at once; what imports nothing is in the first."""
    graph = {name: eager_imports(path) - {name, "__init__"} for name, path in MODULES.items() if name != "__init__"}
    layers = {}

    def layer(name):
        if name not in layers:
            layers[name] = 1 + max((layer(imported) for imported in graph[name]), default=0)
        return layers[name]

    highest = max(graph, key=layer)
    assert layer(highest) <= 12, f"{highest} stands in layer {layer(highest)}"
    assert len(MODULES) <= 125, f"there are {len(MODULES)} modules: join what is one idea"


@pytest.mark.parametrize("name", [name for name in MODULES if "." in name])
def test_no_room_hides_a_module_behind_another_name(name):
    """``import margrave.planning.plans as p`` gives the module, not a function that its room exports."""
    rooms, _, own = name.rpartition(".")
    exported = MODULES[rooms].read_text(encoding="utf-8") if rooms in MODULES else ""
    for node in ast.walk(ast.parse(exported)):
        # A room may import its own modules by name: that hides nothing.
        if isinstance(node, ast.ImportFrom) and node.module != f"margrave.{rooms}":
            assert own not in {alias.asname or alias.name for alias in node.names}, f"margrave.{rooms} hides {own}"


def test_post_processing_cannot_reach_the_data():
    def reachable(name):
        seen, waiting = set(), [name]
        while waiting:
            current = waiting.pop()
            if current not in seen:
                seen.add(current)
                waiting.extend(GRAPH[current])
        return seen

    for name in MODULES:
        if room(name) in POST_PROCESSING:
            private = [m for m in reachable(name) if room(m) in (*PRIVATE, "privacy") and m not in PUBLIC_PRIVACY]
            assert not private, f"{name} reaches {private}"


def test_only_the_domain_knows_the_kinds_of_values():
    """A kind of values is one class and one line in a registry, because nothing else asks which kind it is."""
    for name, path in MODULES.items():
        if room(name) != "domain":
            assert "domain.kinds" not in GRAPH[name], name
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                assert not (isinstance(node, ast.Attribute) and node.attr in ("labels", "cuts")), (
                    f"{name}: {node.lineno}"
                )


def test_randomness_lives_in_the_privacy_room_and_where_things_are_made_up():
    for name, path in MODULES.items():
        if room(name) != "privacy" and name not in MADE_UP:
            text = path.read_text(encoding="utf-8")
            assert "import random" not in text, name
            assert "np.random." not in text, name


def test_seeded_draws_reach_nothing_private_and_nothing_private_reaches_them():
    reached, left = set(), ["synthesis.made_up_draws"]
    while left:
        name = left.pop()
        reached.add(name)
        left += GRAPH[name] - reached
    assert not [name for name in reached if room(name) in (*PRIVATE, "privacy")]
    users = {name for name, imported in GRAPH.items() if "synthesis.made_up_draws" in imported}
    assert users == {"release.count_errors", "synthesis.network", "synthesis.rows"}


def test_texts_reach_the_terminal_through_the_screen_alone():
    """Whoever prints in another way could print a label that acts on the terminal, or that rich takes for markup."""
    for name, path in MODULES.items():
        if name == "cli.screen":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "rich":
                asked = {f"{node.module}.{alias.name}" for alias in node.names}
                assert asked <= {"rich.table.Table", "rich.text.Text"}, name
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                # A text in a style is made by ``styled``; what typer prints is the version and the help.
                assert called not in ("print", "Text", "Text.from_markup", "sys.stdout.write", "sys.stderr.write"), name
                assert not called.endswith(("Console", "secho")), name
                assert called != "typer.echo" or name == "cli.app", name
            assert not (isinstance(node, ast.keyword) and node.arg in ("markup", "emoji")), name


def test_importing_the_package_loads_nothing_heavy():
    """The command line must answer at once; compiled loops, engines and frames come when they are needed."""
    code = "import sys, margrave.cli.app, margrave.methods; print(sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for heavy in ("numba", "scipy", "pandas", "polars", "duckdb", "pyarrow", "altair"):
        assert f"'{heavy}'" not in loaded


def test_a_query_of_a_saved_release_loads_neither_compiler_nor_frames():
    """One table is read and a few numbers are added: that must not wait for compiled loops or for pandas."""
    kept = Path(__file__).parent / "kept" / "0.1" / "planned-lnn"
    for more in ([], ["--share-of", "age > 17"]):
        code = (
            f"import sys; sys.argv = ['margrave', 'query', {str(kept)!r}, \"sex = 'F'\", '--by', 'age', *{more!r}]\n"
            "from margrave.cli.app import main\n"
            "try:\n    main()\nfinally:\n    print(sorted({m.split('.')[0] for m in sys.modules}))"
        )
        loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        assert "'pyarrow'" in loaded
        for heavy in ("numba", "llvmlite", "scipy", "pandas", "polars", "duckdb", "altair"):
            assert f"'{heavy}'" not in loaded, heavy


def test_every_public_name_is_documented_and_there_are_few():
    public = [name for name in margrave.__all__ if not name.startswith("_")]
    assert len(public) <= 30
    for name in public:
        assert getattr(margrave, name).__doc__, name


def test_the_architecture_page_names_every_room_on_its_floor_and_no_file_that_is_not_there():
    page = (PACKAGE.parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
    floors = {}
    for floor, rooms in re.findall(r"^\| (\d+) \| (.+?) \|", page, flags=re.MULTILINE):
        floors |= {name.strip("`/"): int(floor) - 1 for name in re.findall(r"`[a-z_]+/?`", rooms)}
    assert {name: floor for name, floor in FLOOR_OF.items() if not name.startswith("__")} == {
        name: floor for name, floor in floors.items() if name != "margrave"
    }
    for named in re.findall(r"`([a-z_/]+(?:\.py|/))`", page):
        if not named.startswith(("tests/", "src/")):
            assert (PACKAGE / named).exists(), named
