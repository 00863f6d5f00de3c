"""The second stage: one GPU as a bin, cut into MIG instances or shared.

Equal cuts admit the same pieces at the same costs: patterns, placement and fragmentation all
reckon with values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from trencadis.models import MigInstance, Request, Share
from trencadis.models.units import asks_for_mig
from trencadis.solver.geometry import binding, engines_suffice
from trencadis.solver.measure import Measure
from trencadis.solver.pieces import (
    MIG,
    NEVER,
    SHARE,
    WHOLE,
    Blank,
    Cut,
    MigCut,
    OffCut,
    Piece,
    ShareCut,
    closed,
    most_shares,
    plain_share,
    share_places,
)
from trencadis.solver.together import Counts, best, most_sets


@dataclass(frozen=True, eq=False)
class Cutter(Measure):
    """Places pieces on GPUs by the tables of one snapshot; remembers what it found."""

    reconfigure_seconds: int
    mode_seconds: int
    shares: tuple[Share, ...] = ()
    """All that some job or the demand profile asks for."""
    _plain: dict[tuple[object, ...], tuple[int, ...]] = field(default_factory=dict)
    _places: dict[tuple[Cut, Piece], tuple[tuple[int, Cut], ...]] = field(default_factory=dict)
    _most: dict[tuple[Cut, Piece], int] = field(default_factory=dict)
    _moves: dict[
        tuple[str, int, tuple[int, ...], str], tuple[tuple[int, int, int, tuple[int, ...]], ...]
    ] = field(default_factory=dict)
    _counts: dict[tuple[Cut, tuple[Piece, ...]], tuple[Counts, ...]] = field(default_factory=dict)

    def pieces(self, request: Request, model: str) -> tuple[Piece, ...] | None:
        """What one task asks for on GPUs of a model, largest first; None if it can't run there.

        A request for memory or compute gets the smallest profile that holds it.
        """
        if request.share is not None:
            return (Piece("", request.share.gpu_milli, request.share.memory_mib),)
        if not asks_for_mig(request):
            return ()
        table = self.tables.get(model)
        if table is None:
            return None
        if not request.mig:
            fitting = table.smallest(request.mig_memory_mib, request.mig_compute_milli)
            return None if fitting is None else (Piece(fitting.name),)
        profiles = [table.profile(name) for name in request.mig]
        if any(profile is None for profile in profiles):
            return None
        named = sorted(
            (p for p in profiles if p is not None), key=lambda p: (-p.memory_slices, p.name)
        )
        return tuple(Piece(profile.name) for profile in named)

    def empty_mig(self, model: str, *, turned_on: bool = False) -> MigCut:
        """A GPU in MIG mode without instances."""
        count = len(self.tables[model].profiles)
        cost = self.mode_seconds + self.reconfigure_seconds if turned_on else 0
        return MigCut(MIG, model, False, 0, (0,) * count, (), cost)

    def mig_cut(
        self,
        model: str,
        pinned: Sequence[MigInstance],
        idle: Sequence[MigInstance],
        *,
        fixed: bool,
        may_close: bool = False,
    ) -> MigCut | None:
        """A GPU with these instances; None where the table doesn't allow them. `may_close`: whether
        MIG may be turned off where nobody uses it."""
        mask, counts = 0, (0,) * len(self.tables[model].profiles)
        used = mask, counts
        for number, instance in enumerate((*pinned, *idle), start=1):
            for start, _, after, more in self._moves_of(model, mask, counts, instance.profile):
                if start == instance.start:
                    mask, counts = after, more
                    break
            else:
                return None
            if number == len(pinned):
                used = mask, counts
        index = {profile.name: i for i, profile in enumerate(self.tables[model].profiles)}
        places = sorted((instance.start, index[instance.profile]) for instance in idle)
        off = NEVER
        if may_close and not pinned:
            off = self.mode_seconds + (self.reconfigure_seconds if idle else 0)
        return MigCut(MIG, model, fixed, *used, tuple(places), 0, off)

    def plain_share(self, cut: ShareCut) -> ShareCut:
        """The same without what can't bind: slots and memory beyond what the milli-GPU can hold."""
        return plain_share(cut, self.shares)

    def plain_counts(self, model: str, mask: int, counts: tuple[int, ...]) -> tuple[int, ...]:
        """Counts that stand for all that leave as much, where no limit on numbers can bind."""
        table = self.tables[model]
        unit = self.sizes.unit
        numbers, engines = binding(table)
        key = (
            model,
            mask,
            sum(
                n * (unit * p.compute_slices // table.compute_slices)
                for n, p in zip(counts, table.profiles, strict=True)
            ),
            tuple(counts[i] for i in numbers),
            tuple(
                sum(
                    n * p.engines.get(e, 0) for n, p in zip(counts, table.profiles, strict=True)
                )
                for e in engines
            ),
        )
        return self._plain.setdefault(key, counts)

    def opened(self, blank: Blank, piece: Piece) -> Cut | None:
        """A whole idle GPU, made ready for a piece; None if the node doesn't allow that."""
        if piece.profile:
            return self.empty_mig(blank.model, turned_on=True) if blank.mig else None
        if not blank.slots:
            return None
        return self.plain_share(ShareCut(SHARE, blank.model, 1_000, blank.memory, blank.slots))

    def places(self, cut: Cut, piece: Piece) -> tuple[tuple[int, Cut], ...]:
        """Every way to put the piece there: (start, the cut after)."""
        key = (cut, piece)
        if key not in self._places:
            found: Sequence[tuple[int, Cut]] = ()
            if piece == WHOLE:
                found = closed(cut)
            elif isinstance(cut, MigCut):
                found = self._mig_places(cut, piece.profile) if piece.profile else ()
            elif isinstance(cut, ShareCut) and not piece.profile:
                found = share_places(cut, piece)
            self._places[key] = tuple(found)
        return self._places[key]

    def _mig_places(self, cut: Cut, name: str) -> list[tuple[int, MigCut]]:
        assert isinstance(cut, MigCut)
        found: list[tuple[int, MigCut]] = []
        for start, index, mask, counts in self._moves_of(cut.model, cut.mask, cut.counts, name):
            stands = (start, index) in cut.idle
            if cut.fixed and not stands:
                continue
            idle: tuple[tuple[int, int], ...] = ()
            cost = max(cut.cost, self.reconfigure_seconds)
            if stands:
                idle = tuple(entry for entry in cut.idle if entry != (start, index))
                cost = cut.cost
            found.append(
                (
                    start,
                    cut._replace(mask=mask, counts=counts, idle=idle, cost=cost, off=NEVER),
                )
            )
        return found

    def _moves_of(
        self, model: str, mask: int, counts: tuple[int, ...], name: str
    ) -> tuple[tuple[int, int, int, tuple[int, ...]], ...]:
        """(start, profile, mask and counts after) of one more instance, idle ones aside."""
        key = (model, mask, counts, name)
        if key not in self._moves:
            self._moves[key] = tuple(self._find_moves(*key))
        return self._moves[key]

    def _find_moves(
        self, model: str, mask: int, counts: tuple[int, ...], name: str
    ) -> Iterator[tuple[int, int, int, tuple[int, ...]]]:
        table = self.tables[model]
        for index, profile in enumerate(table.profiles):
            if profile.name != name or counts[index] >= profile.most:
                continue
            more = (*counts[:index], counts[index] + 1, *counts[index + 1 :])
            if not engines_suffice(table, more):
                continue
            for start in profile.starts:
                bits = ((1 << profile.memory_slices) - 1) << start
                if not mask & bits:
                    taken = mask | bits
                    yield start, index, taken, self.plain_counts(model, taken, more)

    def most(self, cut: Cut, piece: Piece) -> int:
        """The most of a piece that fit there."""
        if isinstance(cut, ShareCut):
            return most_shares(cut, piece)
        if isinstance(cut, OffCut):
            return 0
        key = (cut, piece)
        found = self._most.get(key)
        if found is None:
            # What stands idle is in nobody's way, unless the layout is fixed.
            plain = cut if cut.fixed else cut._replace(idle=(), cost=0, off=NEVER)
            if plain == cut:
                ways = self.places(cut, piece)
                found = max((1 + self.most(after, piece) for _, after in ways), default=0)
            else:
                found = self.most(plain, piece)
            self._most[key] = found
        return found

    def usable_units(self, cut: Cut, piece: Piece) -> int:
        """Idle units of the GPU that tasks of such pieces can use: whole instances of it; of a
        shared GPU all that is left, if one fits."""
        number = self.most(cut, piece)
        if not number:
            return 0
        if isinstance(cut, ShareCut):
            return self.idle_units(cut)
        return number * self.piece_units(cut.model, piece)

    def holds(
        self, cuts: Sequence[Cut], blank: Blank | None, idle: int, model: str,
        pieces: tuple[Piece, ...],
    ) -> bool:
        """Whether a node can take these pieces; as for `most_on`."""
        if len(pieces) == 1 and any(cut.model == model and self.most(cut, *pieces) for cut in cuts):
            return True
        return self.most_on(cuts, blank, idle, model, pieces) > 0

    def most_on(
        self, cuts: Sequence[Cut], blank: Blank | None, idle: int, model: str,
        pieces: tuple[Piece, ...],
    ) -> int:
        """The most tasks of these pieces that a node can take.

        `idle`: whole idle GPUs of the model, which may become what `blank` says.
        """
        mine = [cut for cut in cuts if cut.model == model]
        kinds = set(pieces)
        bound = None
        for piece in kinds:
            room = sum(self.most(cut, piece) for cut in mine)
            if blank is not None and idle:
                empty = self.opened(blank, piece)
                room += 0 if empty is None else idle * self.most(empty, piece)
            each = room // pieces.count(piece)
            bound = each if bound is None else min(bound, each)
        number = bound or 0
        if len(kinds) < 2:
            return number
        # Pieces of several kinds compete.
        order = tuple(sorted(kinds))
        gpus = [self.best_counts(cut, order) for cut in mine]
        empty = self.opened(blank, order[0]) if blank is not None and idle else None
        if empty is not None:
            gpus += [self.best_counts(empty, order)] * idle
        return most_sets(gpus, tuple(pieces.count(piece) for piece in order), number)

    def best_counts(self, cut: Cut, kinds: tuple[Piece, ...]) -> tuple[Counts, ...]:
        """Pieces of each kind that the GPU holds at once: the counts that no other exceeds."""
        if isinstance(cut, MigCut) and not cut.fixed:
            cut = cut._replace(idle=(), cost=0, off=NEVER)
        key = (cut, kinds)
        if key not in self._counts:
            self._counts[key] = best(
                [
                    (0,) * len(kinds),
                    *(
                        (*counts[:i], counts[i] + 1, *counts[i + 1 :])
                        for i, kind in enumerate(kinds)
                        for _, after in self.places(cut, kind)
                        for counts in self.best_counts(after, kinds)
                    ),
                ]
            )
        return self._counts[key]


def steps(
    cutter_: Cutter, cuts: Sequence[Cut], model: str, piece: Piece
) -> Iterator[tuple[int, int, Cut]]:
    """Ways to put a piece on one of the cuts: (position, start, cut after), equal cuts once."""
    seen: set[Cut] = set()
    for position, cut in enumerate(cuts):
        if cut.model == model and cut not in seen:
            seen.add(cut)
            for start, after in cutter_.places(cut, piece):
                yield position, start, after
