"""What MkDocs calls while it builds the site: writes the generated parts of pages, takes
CONTRIBUTING.md and CHANGELOG.md in, and refuses a site that fetches anything from elsewhere.
"""

from __future__ import annotations

import re
from pathlib import Path

import figures
import pages
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

GENERATED = {
    "instructions": lambda: figures.instructions_table(figures.read_reference()),
    "sizes": lambda: figures.sizes_table(figures.read_reference()),
    "methods": lambda: figures.methods_table(figures.read_reference()),
    "benchmarks": lambda: figures.benches_text(figures.read_benches()),
    "figures": lambda: figures.readme_block(figures.read_reference(), figures.read_benches()),
    "command line": pages.command_line,
    "artifact format": pages.artifact_format,
    "python api": pages.python_api,
    "python api, beside": pages.python_api_beside,
}
"""What `<!-- generated: NAME -->` in a page stands for."""

FROM_THE_ROOT = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}

REMOTE = re.compile(
    r"""<(?:script|img|iframe)[^>]*\ssrc=["']?(?:https?:)?//|<link[^>]*rel=["']?(?:stylesheet|preconnect)[^>]*//"""
)


def on_files(files, config):
    for page, source in FROM_THE_ROOT.items():
        text = (figures.ROOT / source).read_text(encoding="utf-8").replace("](docs/", "](")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown, page, **_):
    def written(match: re.Match) -> str:
        if match[1] not in GENERATED:
            raise PluginError(f"{page.file.src_uri}: nothing generates '{match[1]}'.")
        return GENERATED[match[1]]()

    return re.sub(r"<!-- generated: (.+?) -->", written, markdown)


def on_post_build(config):
    for path in Path(config.site_dir).rglob("*.html"):
        found = REMOTE.search(path.read_text(encoding="utf-8"))
        if found:
            raise PluginError(f"{path.name} fetches from elsewhere: {found[0]}")
