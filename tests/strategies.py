"""Small domains and workloads for hypothesis: sizes 1 to 4, up to five attributes, families of every shape."""

from hypothesis import strategies as st

# At most 4⁵ = 1,024 cells in the universe, so that explicit matrices stay small.
sizes = st.lists(st.integers(1, 4), min_size=1, max_size=5).map(tuple)


@st.composite
def families(draw, max_sets=5):
    """A domain's sizes with a family of one to ``max_sets`` attribute sets, any order from 0 to all."""
    shape = draw(sizes)
    one = st.sets(st.integers(0, len(shape) - 1)).map(lambda s: tuple(sorted(s)))
    family = draw(st.lists(one, min_size=1, max_size=max_sets))
    return shape, family


seeds = st.integers(0, 2**32 - 1)
