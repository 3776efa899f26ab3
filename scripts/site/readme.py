"""Writes the README's table of figures again: python scripts/site/readme.py"""

from __future__ import annotations

import figures

README = figures.ROOT / "README.md"
BEGIN, END = "<!-- figures: scripts/docs writes them -->", "<!-- end of figures -->"


def current() -> str:
    """The README with its block as the committed files say."""
    text = README.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert end, f"README.md has no block between '{BEGIN}' and '{END}'."
    block = figures.readme_block(figures.read_reference(), figures.read_benches())
    return f"{before}{BEGIN}\n{block}{END}{after}"


if __name__ == "__main__":
    README.write_text(current(), encoding="utf-8")
