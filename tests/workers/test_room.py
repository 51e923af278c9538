"""What is live on a node, counted as it comes and goes."""

from hypothesis import given
from hypothesis import strategies as st

from headbay.domain.attempt import LaunchSpec
from headbay.domain.resources import fits, subtract, total
from headbay.workers.node.room import Room

CAPACITY = {"cpu": 8000, "memory": 1 << 30}


def spec(number: int, step: str = "s") -> LaunchSpec:
    return LaunchSpec(
        workload="w",
        step=step,
        attempt=number,
        fence=number,
        allocation="a",
        pool="default",
        node="n",
        epoch=1,
        argv=["true"],
        resources={"cpu": 100 * number, "gpu": number % 2},
    )


UNITS = st.integers(1, 6)
STEPS = st.sampled_from(["one", "two"])


@given(st.lists(st.tuples(st.booleans(), UNITS, STEPS)))
def test_it_counts_what_a_recount_would(moves):
    room = Room(CAPACITY)
    live: dict[int, LaunchSpec] = {}
    for takes, number, step in moves:
        if takes:
            room.take(str(number), spec(number, step))
            live.setdefault(number, spec(number, step))
        else:
            room.leave(str(number))
            live.pop(number, None)
        assert room.free() == subtract(CAPACITY, total(s.resources for s in live.values()))
        for asked in ("one", "two"):
            found = room.attempt_of("w", asked)
            assert (found is None) == all(s.step != asked for s in live.values())
            assert found is None or found in live.values()


def test_what_is_more_than_there_is_leaves_room_for_nothing():
    room = Room({"cpu": 100})
    room.take("a", spec(3))
    assert not fits({"cpu": 1}, room.free())
    room.leave("a")
    assert fits({"cpu": 100}, room.free())
