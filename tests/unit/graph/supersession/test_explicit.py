from __future__ import annotations

from tests.unit.graph.supersession.conftest import Find, Note, pairs


def test_a_link_by_id_supersedes_that_memory_whatever_the_dates_say(find: Find) -> None:
    old = Note("Deploys go out on Mondays", 9, memory_id="12")
    new = Note("Deploys go out daily. Supersedes #12", 3, says=[("", "supersedes", "#12")])
    (found,) = find(old, new).found
    assert (found.older_position, found.newer_position) == (0, 1)
    assert (found.reason, found.confidence) == ("explicit", 2)
    # Nothing ends before it began, and the gap is not negative.
    assert found.valid_to_us == old.record(0).created_at_us
    assert found.age_gap_days == 0


def test_a_link_by_id_needs_no_dates(find: Find) -> None:
    old = Note("Deploys go out on Mondays", None, memory_id="12")
    new = Note("Supersedes #12", None, says=[("", "supersedes", "#12")])
    assert pairs(find(old, new)) == [(0, 1)]


def test_links_by_id_that_lead_nowhere_are_counted(find: Find) -> None:
    result = find(
        Note("Supersedes #99", 1, says=[("", "supersedes", "#99")]),
        Note("Supersedes #m1", 1, says=[("", "supersedes", "#m1")]),
        Note("Supersedes #m3", 1, says=[("", "supersedes", "#m3")], user="ana"),
        Note("The key of Ben", 0, user="ben"),
    )
    assert result.found == ()
    assert result.rejected == {"scope": 1, "self": 1, "unknown_id": 1}


def test_a_name_means_the_newest_older_memory_about_it(find: Find) -> None:
    result = find(
        Note("slow to start", 1, about=["Jest"]),
        Note("all tests use it", 5, about=["Jest"]),
        Note("Vitest: replaced Jest", 9, says=[("vitest", "supersedes", "jest")]),
        Note("a note of later", 12, about=["Jest"]),
    )
    (found,) = result.found
    assert (found.older_position, found.newer_position, found.confidence) == (1, 2, 1)
    assert found.evidence.position == 2


def test_a_tag_counts_where_no_memory_is_about_the_name(find: Find) -> None:
    tagged = Note("All tests run in it", 1, tags="jest")
    newer = Note("Vitest: replaced Jest", 9, says=[("vitest", "supersedes", "jest")])
    assert pairs(find(tagged, newer)) == [(0, 1)]
    both = find(tagged, Note("Jest: slow", 0), newer)
    assert pairs(both) == [(1, 2)]


def test_who_is_not_about_the_newer_thing_is_believed_less(find: Find) -> None:
    old = Note("Jest: all tests use it", 1)
    aside = Note("Standup: somebody replaced Jest", 9, says=[("vitest", "supersedes", "jest")])
    (found,) = find(old, aside).found
    assert found.confidence == 0


def test_a_memory_may_say_itself_what_replaced_it(find: Find) -> None:
    result = find(
        Note("TSLint: replaced by ESLint", 1, says=[("eslint", "supersedes", "tslint")]),
        Note("strict rules", 5, about=["ESLint"]),
        Note("even stricter rules", 9, about=["ESLint"]),
    )
    (found,) = result.found
    assert (found.older_position, found.newer_position) == (0, 1)
    assert found.evidence.position == 0
    bare = Note("Linting is old. Replaced by ESLint.", 1, says=[("eslint", "supersedes", "#")])
    assert pairs(find(bare, Note("ESLint: strict rules", 5))) == [(0, 1)]


def test_names_are_compared_by_what_stands_for_them(find: Find) -> None:
    old = Note("k8s: three nodes", 1)
    new = Note("Nomad: replaced Kubernetes", 9, says=[("nomad", "supersedes", "kubernetes")])
    assert find(old, new).found == ()
    assert pairs(find(old, new, k8s="kubernetes")) == [(0, 1)]


def test_generic_words_and_undated_memories_name_nothing(find: Find) -> None:
    result = find(
        Note("Decision", 1, about=["decision", "jest"]),
        Note("Replaced the decision", 9, says=[("", "supersedes", "decision")]),
        Note("Replaced it", 9, says=[("", "supersedes", "it")]),
        Note("Replaced Jest", None, says=[("", "supersedes", "jest")]),
        Note("Replaced Mocha", 9, says=[("", "supersedes", "mocha")]),
    )
    assert result.found == ()
    assert result.rejected == {"generic": 2, "no_target": 1, "undated": 1}
