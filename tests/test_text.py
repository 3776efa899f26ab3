"""Figures as people read them."""

import pytest

from edgeexport import text


@pytest.mark.parametrize(
    ("size_bytes", "said"),
    [
        (None, "not recorded"),
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1000, "1 kB"),
        (24_584, "24.6 kB"),
        (262_144, "262 kB"),
        (131_072_000, "131 MB"),
        (4_700_000_000, "4.7 GB"),
        (1_234_000_000_000, "1234 GB"),
    ],
)
def test_bytes_are_said_in_the_unit_that_fits(size_bytes, said):
    assert text.size(size_bytes) == said
