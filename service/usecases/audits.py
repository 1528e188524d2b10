"""Own what is told of audits: MANY over the tracked tables' own values, held against the INDs that are served."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from service.core.corpus_choices import Algorithm


@dataclass(frozen=True, slots=True)
class Audit:
    """Tell what an audit of one state version found.

    `inds` hold by the values of `attributes` columns with `value_count` distinct values (added up); of these
    `not_served` were not served, and `not_holding` were served besides. `report` has `examples` of both as pairs of
    full names, `filters`: what each would leave out by its reason (columns on either side, INDs, INDs that no other
    filter leaves out), `inds_left` with all of them on, `sketch_only`: attributes without values, the `algorithm` that
    ran, and `seconds`.
    """

    audit_id: int
    version: int
    started_at: datetime
    ended_at: datetime
    attributes: int
    value_count: int
    inds: int
    not_served: int
    not_holding: int
    report: Mapping[str, Any]

    @property
    def algorithm(self) -> str:
        """Name the algorithm that found the INDs; before it could be chosen it was rarest-first."""
        return str(self.report.get("algorithm", Algorithm.RAREST_FIRST))

    @property
    def differences(self) -> int:
        """Count what should not be."""
        return self.not_served + self.not_holding
