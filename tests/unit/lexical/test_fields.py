from __future__ import annotations

from noctuary.text.marks import content_tags
from noctuary.text.tokens import document_tokens


def test_scope_tags_are_not_content() -> None:
    tags = "wing:home, kitchen ,Room:stove,session:s1,user:ann,,colour:red"
    assert content_tags(tags) == ["kitchen", "colour:red"]


def test_content_then_keywords_then_tags_are_indexed_and_the_category_is_not() -> None:
    tokens = document_tokens("The oven broke", "kitchen,wing:home", "stove repair", "facts")
    assert tokens == ["oven", "broke", "stove", "repair", "kitchen"]


def test_fields_do_not_run_into_each_other() -> None:
    assert document_tokens("使用", "编程", "光影", "") == ["使用", "光影", "编程"]
    assert document_tokens("end", "tag", "key", "") == ["end", "key", "tag"]


def test_a_memory_of_stop_words_is_found_by_its_tag_alone() -> None:
    assert document_tokens("to be or not to be", "hamlet", "", "") == ["hamlet"]
