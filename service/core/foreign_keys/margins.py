"""Own margins: how far a candidate is in front of the others that it competes with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from service.core.quantile_grids import Floats


def lead(values: Floats, groups: Sequence[int]) -> Floats:
    """Give how far each value is in front of the best other one of its group: 1 where it is alone."""
    members = defaultdict(list)
    for place, group in enumerate(groups):
        members[group].append(place)
    found = np.ones(len(values))
    for places in members.values():
        if len(places) > 1:
            first, second = np.sort(values[places])[:-3:-1]
            of_best = np.arange(len(places)) == np.argmax(values[places])
            found[places] = values[places] - np.where(of_best, second, first)
    return found
