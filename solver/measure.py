"""How much of a GPU in parts is idle, and how much a piece takes, in units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trencadis.models.mig import MigTable
from trencadis.models.units import Sizes
from trencadis.solver.pieces import Blank, Cut, OffCut, Piece, ShareCut


@dataclass(frozen=True, eq=False)
class Measure:
    """Reckons by the tables of one snapshot."""

    tables: Mapping[str, MigTable]
    sizes: Sizes

    def idle_units(self, cut: Cut) -> int:
        """Units of the GPU that nobody uses, by compute."""
        unit = self.sizes.unit
        if isinstance(cut, ShareCut):
            return cut.milli * unit // 1_000
        if isinstance(cut, OffCut):
            return 0
        table = self.tables[cut.model]
        used = sum(
            n * (unit * profile.compute_slices // table.compute_slices)
            for n, profile in zip(cut.counts, table.profiles, strict=True)
        )
        return max(0, unit - used)

    def piece_units(self, model: str, piece: Piece) -> int:
        """Units of a piece, by compute."""
        unit = self.sizes.unit
        if not piece.profile:
            return piece.milli * unit // 1_000
        table = self.tables[model]
        profile = table.profile(piece.profile)
        assert profile is not None
        return unit * profile.compute_slices // table.compute_slices

    def most_pieces(self, cut: Cut) -> int:
        """An upper bound on the pieces that the GPU takes, of whatever kinds."""
        if isinstance(cut, ShareCut):
            return cut.slots
        if isinstance(cut, OffCut):
            return 0
        return self.tables[cut.model].memory_slices - cut.mask.bit_count()

    def most_opened(self, blank: Blank) -> int:
        """Likewise of a whole idle GPU that is made into one in parts."""
        slices = self.tables[blank.model].memory_slices if blank.mig else 0
        return max(slices, blank.slots)
