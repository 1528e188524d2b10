"""Who follows a source again is told where more is kept of it than is said now, and goes on where less is."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from service.core.errors import SourceError
from service.usecases.said_before import require_said
from spark_jobs.sources import Options

TABLES = [("public", "customers"), ("public", "orders")]
COLUMNS = {"public.customers.name": None, "public.customers.email": 4, "public.customers.phone": 0}


def require(
    *, said: str | None = None, exclude: Sequence[str] = (), store_values: str | None = None, masks: Sequence[str] = ()
) -> None:
    require_said("shop", TABLES, said, COLUMNS, exclude, store_values, masks)


def test_what_is_said_as_before_or_of_which_less_is_kept_goes_on() -> None:
    require()
    require(masks=["public.customers.email=prefix:4", "public.customers.phone=prefix", "public.customers.name=full"])
    require(said="prefix:3", store_values="prefix:3")
    require(said="none", store_values="prefix")
    require(exclude=["public.secrets", "secrets"])


@pytest.mark.parametrize(
    ("mask", "keep"),
    [
        ("public.customers.name", "none"),
        ("public.customers.name=prefix:9", "prefix:9"),
        ("public.customers.email=prefix:3", "prefix:3"),
        ("public.customers.email=none", "none"),
    ],
)
def test_a_mask_that_would_hide_more_names_the_command_that_does(mask: str, keep: str) -> None:
    column = mask.partition("=")[0]
    with pytest.raises(SourceError, match=rf"subsetd attribute mask {column} --keep {keep}`, or .*--replace"):
        require(masks=[mask])


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"store_values": "none"}, "more of its values is kept than --store-values says"),
        ({"said": "prefix:5", "store_values": "prefix:4"}, "more of its values is kept"),
        ({"exclude": ["orders"]}, "public.orders with it, which --exclude leaves out"),
        ({"exclude": ["public.customers"]}, "public.customers with it"),
        ({"masks": ["public.customers.age"]}, "has no such column"),
        ({"masks": ["public.customers.name=some"]}, "'some' does not say what to keep"),
    ],
)
def test_what_else_would_be_overheard_is_refused(asked: dict[str, object], told: str) -> None:
    with pytest.raises(SourceError, match=told):
        require(**asked)  # type: ignore[arg-type]


def test_what_was_said_of_a_source_stands_where_nothing_is_said() -> None:
    before = Options(
        "/data", "log", qualify=True, null_tokens=("NULL", ""), header=False, quote="", exclude=("s.secret",)
    )
    settings = before.settings()
    again = Options("/data", "log", null_tokens=("-",)).with_those_before(settings, True, True)
    assert again.told() == [
        "--qualify", "--null-token=-", "--no-header", "--quote=", "--exclude=s.secret", "--insert-only", "--sketch-only"
    ]  # fmt: skip
    assert Options("/data", "log").told() == []
    followed = {**settings, "published": True, "only_tables": ["s.orders"]}
    assert Options("-", "log").with_those_before(followed, False, False).only_tables == (), "follow says them anew"
    assert Options("-", "log").with_those_before({**followed, "published": False}, False, False).only_tables
    with pytest.raises(SourceError, match=r"SUBSETD_SKETCHES.*--forget-options"):
        Options("/data", "log", sketches=None).with_those_before(settings, False, True)
