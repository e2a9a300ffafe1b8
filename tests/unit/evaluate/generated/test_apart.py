from __future__ import annotations

import pytest

from noctuary.evaluate.generated import check_apart
from noctuary.work.http import Endpoint


def test_generator_and_judge_must_be_two_models() -> None:
    check_apart(Endpoint("http://h", "one"), Endpoint("http://h", "two"))
    with pytest.raises(ValueError, match="favours what it wrote itself"):
        check_apart(Endpoint("http://h", "One"), Endpoint("http://elsewhere", "one "))
