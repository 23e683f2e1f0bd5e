#!/usr/bin/env python3
"""Writes the vendored lists and their fixtures anew from two published packages.

    pip download --no-deps crawler-user-agents -d /tmp/lists
    python3 lib/bots/data/refresh.py /tmp/lists/crawler_user_agents-*.whl ISBOT.crate

The second file is the package of the crate `isbot` as cargo keeps it below its registry cache, after
`cargo info isbot`. What is ours, `classes.tsv` and `left-out.tsv`, stays. Where a pattern changed, the list's version
in src/version.rs is raised; run `cargo test -p onlooker-bots` and write its figures into docs/bots.md.
"""

import gzip
import io
import json
import pathlib
import re
import sys
import tarfile
import zipfile

DATA = pathlib.Path(__file__).resolve().parent
CRATE = DATA.parent
FIXTURES = CRATE / "tests" / "data"
# A sample of the browsers is enough for a test; `examples/measure.rs` takes the whole file.
EVERY = {"browsers": 40, "ua_parser": 8}


def put_lines(name, lines):
    """A fixture whose bytes depend on its lines alone."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0, compresslevel=9) as file:
        file.write("".join(line + "\n" for line in lines).encode())
    (FIXTURES / f"{name}.txt.gz").write_bytes(packed.getvalue())


def agents(lines):
    """Those that a header could hold on one line."""
    return [line for line in lines if isinstance(line, str) and line.strip() and "\n" not in line and "\r" not in line]


def crawler_user_agents(wheel):
    with zipfile.ZipFile(wheel) as package:
        entries = json.loads(package.read("crawleruseragents/crawler-user-agents.json"))
        licence = next(name for name in package.namelist() if name.endswith("licenses/LICENSE"))
        (DATA / "LICENSE-crawler-user-agents").write_bytes(package.read(licence))
    rows = [f"{entry['pattern']}\t{','.join(entry.get('tags', []))}\n" for entry in entries]
    # Each instance with the pattern that it is listed under.
    put_lines("crawler_user_agents", agents(i for entry in entries for i in entry["instances"]))
    return "".join(rows), re.search(r"-([0-9.]+)-py", wheel).group(1)


def isbot(crate):
    with tarfile.open(crate) as package:
        def read(name):
            member = next(m for m in package.getmembers() if m.name.split("/", 1)[1] == name)
            return package.extractfile(member).read().decode()

        (DATA / "LICENSE-isbot").write_text(read("LICENSE"))
        # A trailing blank belongs to some patterns.
        rows = "".join(line + "\n" for line in read("src/bot_regex_patterns.txt").splitlines() if line.strip())
        put_lines("isbot_bots", agents(read("fixtures/bots.txt").splitlines()))
        put_lines("ua_parser_bots", agents(json.loads(read("fixtures/ua-parser-bots.json"))))
        put_lines("browsers", agents(read("fixtures/browsers.txt").splitlines())[:: EVERY["browsers"]])
        put_lines("isbot_js_browsers", agents(json.loads(read("fixtures/omrilotan-browsers.json"))))
        put_lines("ua_parser_apps", agents(json.loads(read("fixtures/ua-parser-browsers.json")))[:: EVERY["ua_parser"]])
    return rows, re.search(r"-([0-9.]+)\.crate", crate).group(1)


def main():
    lists = {"crawler-user-agents": crawler_user_agents(sys.argv[1]), "isbot": isbot(sys.argv[2])}
    version = CRATE / "src" / "version.rs"
    number = int(re.search(r"LIST_VERSION: u32 = (\d+)", version.read_text()).group(1)) if version.exists() else 0
    changed = not version.exists()
    for name, (rows, _) in lists.items():
        file = DATA / f"{name}.tsv"
        changed |= not file.exists() or file.read_text() != rows
        file.write_text(rows)
    number += changed
    sources = ", ".join(f'("{name}", "{release}")' for name, (_, release) in lists.items())
    version.write_text(
        "//! Written by data/refresh.py.\n\n"
        "/// The number of this state of the lists. It grows with every change to a pattern or a class, also to ours.\n"
        f"pub const LIST_VERSION: u32 = {number};\n\n"
        "/// The packages that the vendored lists come from: name and release.\n"
        f"pub const SOURCES: [(&str, &str); 2] = [{sources}];\n"
    )


main()
