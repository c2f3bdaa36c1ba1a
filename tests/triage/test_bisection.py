"""The search for the version with which a case turned, without installing any."""

import itertools
import math

import pytest

from harness.cases import Verdict
from harness.triage.bisection import search
from harness.triage.candidates import BadVersions, asked


def searched(verdicts):
    tried = []

    def judge(place):
        tried.append(place)
        return verdicts[place]

    return search(len(verdicts), judge), tried


@pytest.mark.parametrize("count", range(2, 40))
def test_every_turn_is_found_in_as_many_tries_as_halving_takes(count):
    for turn in range(1, count):
        found, tried = searched([Verdict.PASS] * turn + [Verdict.CRASH] * (count - turn))
        assert (found.before, found.after, [*found.between]) == (turn - 1, turn, [])
        assert tried[:2] == [0, count - 1]
        assert len(tried) == len(set(tried)) <= 2 + math.ceil(math.log2(count - 1) if count > 2 else 0)


def test_what_cannot_be_judged_widens_the_answer_and_never_makes_it_wrong():
    count = 7
    for turn, skips in itertools.product(range(1, count), range(2**count)):
        plain = [Verdict.PASS] * turn + [Verdict.CRASH] * (count - turn)
        verdicts = [None if skips >> place & 1 else verdict for place, verdict in enumerate(plain)]
        found, tried = searched(verdicts)
        assert len(tried) == len(set(tried))
        judged = [place for place in range(count) if verdicts[place]]
        if len({verdicts[place] for place in judged}) < 2:
            assert not found.turned
            assert found.judged == (len(judged) > 1)
            continue
        assert found.before == max(place for place in judged if place < turn)
        assert found.after == min(place for place in judged if place >= turn)
        assert not any(verdicts[place] for place in found.between)


@pytest.mark.parametrize(
    ("verdicts", "turn"),
    [
        ("PASS CRASH TIMEOUT RUN_ERROR", 1),
        ("CRASH TIMEOUT PASS PASS", 2),
        ("PASS PASS FLAKY CRASH", 2),
        ("CRASH CRASH RUN_ERROR TIMEOUT", 2),
    ],
)
def test_other_failures_are_on_the_side_of_those_that_do_not_pass(verdicts, turn):
    found, _ = searched([Verdict(word) for word in verdicts.split()])
    assert (found.before, found.after, found.turned) == (turn - 1, turn, True)


def test_alike_at_both_ends_nothing_more_is_tried():
    found, tried = searched([Verdict.PASS, Verdict.CRASH, Verdict.PASS])
    assert (found.judged, found.turned, tried) == (True, False, [0, 2])


INDEX = ("2.1", "2.0", "1.10+cpu", "1.9", "1.2", "1.10rc1", "1.3.dev5")


def released(name, prereleases):
    return [one for one in INDEX if prereleases or not ("rc" in one or "dev" in one)]


@pytest.mark.parametrize(
    ("words", "versions"),
    [
        (["a==1.2..2.0"], "1.2 1.9 1.10+cpu 2.0"),
        (["a==1.2..1.10"], "1.2 1.9 1.10+cpu"),
        (["a==1.3.dev5..1.10"], "1.3.dev5 1.9 1.10rc1 1.10+cpu"),
        (["a==9,3", "A==4"], "3 4 9"),
        (["a==1.9..2.1", "a==5"], "1.9 1.10+cpu 2.0 2.1 5"),
    ],
)
def test_what_is_asked_for_is_tried_from_the_oldest_on(words, versions):
    assert [one.version for one in asked(words, released)] == versions.split()


def test_wheels_are_found_by_name_or_glob_and_those_of_one_version_stay_in_order(tmp_path):
    for name in ("a-2-1later-py3-none-any", "a-2-py3-none-any", "a-1.5-py3-none-any", "not_a_wheel"):
        (tmp_path / f"{name}.whl").touch()
    given = [str(tmp_path / f"a-2{build}-py3-none-any.whl") for build in ("-1later", "")]
    found = asked([*given, str(tmp_path / "a-1*.whl")], released)
    assert [one.wheel.name.partition("-py3")[0] for one in found] == ["a-1.5", "a-2-1later", "a-2"]
    assert [one.requirement for one in found] == [str(one.wheel) for one in found]
    with pytest.raises(BadVersions, match=r"not_a_wheel\.whl is not called like a wheel"):
        asked([str(tmp_path / "*.whl")], released)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["a"], "'a' names no versions: give a range such as"),
        (["--index-url=x==1..2"], "names no versions"),
        (["a==1..x"], "Invalid version: 'x'"),
        (["a==1.2.."], "Invalid version: ''"),
        (["a==2..1"], r"ends before it begins: write it as a==1\.\.2"),
        (["a==1.2..3"], "pip finds no a 3 for this Python; it finds 2.1, 2.0"),
        (["a==1,2", "b==3"], "not of a and b"),
        (["a==1"], "is only a 1: give two versions to tell apart"),
        (["a==2.1..2.1"], "is only a 2.1"),
        (["no/such.whl"], "there is no such wheel"),
    ],
)
def test_what_is_no_versions_is_refused_in_one_line(words, why):
    with pytest.raises(BadVersions, match=why) as caught:
        asked(words, released)
    assert "\n" not in str(caught.value)
