"""The number of buckets that an error asks for: it is kept, by no more buckets, and settings and options say it."""

from __future__ import annotations

import numpy as np
import pytest

from service.bootstrap_command import sketch_sizes
from service.config import ConfigError, load_settings
from service.core.errors import SketchError
from service.core.estimators import Column, bucket_bits_for, estimate, needed_bucket_bits
from service.core.sketches.hll import Hll
from tests.columns import draw_pair


def as_of_a_lake(column: Column) -> Column:
    """Forget the number of values."""
    size = Hll(column.bucket_bits, column.registers).estimate()
    return Column(column.registers, size, is_size_exact=False)


@pytest.mark.parametrize("error", [0.15, 0.08])
@pytest.mark.parametrize("is_sized", [True, False])
def test_an_error_is_kept_by_its_buckets_and_not_by_fewer(error: float, is_sized: bool) -> None:
    m, nx, ny = bucket_bits_for(error), 5000, 4000
    missed = np.zeros(2)
    for seed in range(50):
        for common in (800, 1600, 2400):
            for place, bits in enumerate((m, m - 1)):
                x, y = draw_pair(seed, nx, ny, common, bits)
                if not is_sized:
                    x, y = as_of_a_lake(x), as_of_a_lake(y)
                found = estimate(x, y, "joint-mle").phi
                assert found is not None
                missed[place] += abs(found - common / nx) > error
    assert missed[0] <= 15, "1 in 20 of 150 is expected at most"
    assert missed[1] >= 2 * missed[0]


def test_the_buckets_do_for_columns_of_all_sizes_and_the_root_of_the_ratio_counts() -> None:
    for error in (0.2, 0.05, 0.02):
        m = bucket_bits_for(error)
        for nx, ny in ((100, 90), (10**4, 10**4), (10**7, 10), (10**8, 10**8)):
            assert (needed_bucket_bits(nx, ny, error) or 0) <= m
        assert needed_bucket_bits(10**6, 16 * 10**6, 4 * error, are_sizes_known=False) in (m - 1, m)


@pytest.mark.parametrize("error", [0.0, -1.0, 1e-6, float("nan")])
def test_an_error_that_no_sketch_keeps_is_refused(error: float) -> None:
    with pytest.raises(SketchError, match="keeps coefficients within"):
        bucket_bits_for(error)


def test_a_setting_says_the_error_or_the_buckets() -> None:
    assert sketch_sizes(load_settings(sketch_error=0.02, sketch_k=100)) == [
        f"--sketch-bucket-bits={bucket_bits_for(0.02)}",
        "--sketch-k=100",
    ]
    assert sketch_sizes(load_settings(sketch_bucket_bits=9))[0] == "--sketch-bucket-bits=9"
    with pytest.raises(ConfigError, match="SUBSETD_SKETCH_ERROR and SUBSETD_SKETCH_BUCKET_BITS both say"):
        sketch_sizes(load_settings(sketch_error=0.02, sketch_bucket_bits=13))
    with pytest.raises(ConfigError, match="SUBSETD_SKETCH_ERROR"):
        load_settings(sketch_error=1.0)
