"""Prompts and token counts of the captioning pipeline, against an artifact of a toy."""

from types import SimpleNamespace

import pytest

from edgeexport.errors import InputError
from edgeexport.pipelines.captions import _prompt_ids

FACTS = {"start": 1, "end": 2, "text_positions": 6}


class Words:
    """A tokenizer of one token a word, counting from 10."""

    def encode(self, text, add_special_tokens):
        assert add_special_tokens is False
        return SimpleNamespace(ids=[10 + i for i, _ in enumerate(text.split())])


def test_a_caption_begins_with_the_prompt():
    assert _prompt_ids(None, None, FACTS) == [1]
    assert _prompt_ids(Words(), "a photo of", FACTS) == [1, 10, 11, 12]


def test_prompts_that_cannot_be_are_refused():
    with pytest.raises(InputError, match="needs a tokenizer"):
        _prompt_ids(None, "a photo of", FACTS)
    with pytest.raises(InputError, match="prompt has 8 tokens"):
        _prompt_ids(Words(), "one two three four five six seven", FACTS)
