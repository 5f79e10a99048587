from collections import Counter

from windtunnel.agents.isolation import as_text, make_salt, make_tag


def test_salts_and_tags_differ_and_repeat():
    assert make_salt("run-1") == make_salt("run-1") != make_salt("run-2")
    tags = {make_tag("run-1", trace, copy) for trace in ("a", "b") for copy in range(500)}
    assert len(tags) == 1000
    assert make_tag("run-1", "a", 0) == make_tag("run-1", "a", 0) != make_tag("run-2", "a", 0)
    assert len(make_salt("run-1")) <= 1024


def test_they_always_cost_the_same_number_of_tokens(served):
    salts = Counter(served.count(as_text(make_salt(str(i)))) for i in range(200))
    tags = Counter(served.count(as_text(make_tag("r", "t", i))) for i in range(200))
    assert len(salts) == 1
    assert len(tags) == 1
