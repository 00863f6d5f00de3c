"""Where slices and shares are on one node while jobs are being placed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from trencadis.solver.fragmentation import Profile, reconfiguration
from trencadis.solver.patterns.recipes import Recipe
from trencadis.solver.pieces import WHOLE, Blank, Cut, OffCut, Piece, Spot, closable
from trencadis.solver.shapes import Need, opened_need
from trencadis.solver.slices import Cutter, steps


@dataclass(slots=True)
class Place:
    """A GPU of the second stage as it fills up."""

    model: str
    base: Cut | None
    """As it was; None for a whole GPU that is opened when it is first used."""
    cut: Cut | None
    """As it is now; None: not opened."""
    pieces: list[tuple[Piece, int]]
    """What was put there: (piece, start)."""


@dataclass(slots=True)
class _Seated:
    job: str
    need: Need
    spots: tuple[Spot, ...]


class Desk:
    """The second stage of a node. Positions are stable: GPUs in it from the start come first."""

    def __init__(
        self,
        knife: Cutter | None = None,
        profile: Profile | None = None,
        cuts: Sequence[Cut] = (),
        blanks: Mapping[str, Blank] | None = None,
    ) -> None:
        self._knife, self._profile = knife, profile
        self._blanks = blanks or {}
        self.places = [Place(cut.model, cut, cut, []) for cut in cuts]
        self.seated: list[_Seated] = []
        self._closed: list[_Seated] = []
        """GPUs on which MIG is turned off, and for whom."""
        self._recipe: defaultdict[
            tuple[str, tuple[Piece, ...]], list[tuple[Spot, ...]]
        ] = defaultdict(list)

    @property
    def knife(self) -> Cutter:
        """What places pieces."""
        assert self._knife is not None
        return self._knife

    def present(self) -> list[Cut]:
        """The cuts as they are now, by position."""
        return [place.cut for place in self.places if place.cut is not None]

    def opened_needs(self, dims: int) -> list[Need]:
        """A need of one whole GPU for each GPU that was opened, by position."""
        return [
            opened_need(place.model, dims)
            for place in self.places
            if place.base is None and place.cut is not None
        ]

    def holds(self, model: str, pieces: tuple[Piece, ...], idle: int) -> bool:
        """Whether the pieces fit now, with so many whole GPUs of the model idle."""
        blank = self._blanks.get(model)
        return self.knife.most_on(self.present(), blank, idle, model, pieces) > 0

    def tasks(
        self, gpus: Sequence[int], opened: Sequence[int]
    ) -> Iterator[tuple[str, list[tuple[int, int, Piece]]]]:
        """(job, [(GPU, start, piece)]) of each task. `gpus`: indices of the GPUs in the second
        stage from the start, `opened`: of those opened, by position."""
        fresh = iter(opened)
        index = [
            gpus[i] if place.base is not None else next(fresh) if place.cut is not None else -1
            for i, place in enumerate(self.places)
        ]
        for entry in self.seated:
            each = len(entry.need.pieces) // entry.need.sets
            for first in range(0, len(entry.spots), each):
                yield (
                    entry.job,
                    [
                        (index[spot.position], spot.start, piece)
                        for piece, spot in zip(
                            entry.need.pieces[first : first + each],
                            entry.spots[first : first + each],
                            strict=True,
                        )
                    ],
                )

    def forget(self) -> None:
        """Follows no pattern any more."""
        self._recipe.clear()

    def follow(self, recipe: Recipe) -> None:
        """Puts pieces where a pattern has them; its positions are those of the sorted cuts."""
        self._recipe.clear()
        order = [i for i, place in enumerate(self.places) if place.cut is not None]
        order.sort(key=lambda i: (self.places[i].cut, i))
        opened: dict[int, int] = {}
        for model, pieces, spots in recipe:
            moved = []
            for spot in spots:
                if spot.position < len(order):
                    moved.append(spot._replace(position=order[spot.position]))
                    continue
                if spot.position not in opened:
                    opened[spot.position] = self._new_place(model, set(opened.values()))
                moved.append(spot._replace(position=opened[spot.position]))
            self._recipe[(model, pieces)].append(tuple(moved))

    def _new_place(self, model: str, reserved: set[int]) -> int:
        for position, place in enumerate(self.places):
            unused = place.base is None and place.cut is None and position not in reserved
            if unused and place.model == model:
                return position
        self.places.append(Place(model, None, None, []))
        return len(self.places) - 1

    def take(self, job: str, need: Need, idle: dict[str, int]) -> None:
        """Places a need's pieces, as the pattern has it or else where least is lost.

        `idle`: whole idle GPUs by model; those that are opened are taken from it.
        """
        model = need.model or ""
        spots: tuple[Spot, ...] | None = None
        planned = self._recipe.get((model, need.pieces), [])
        while spots is None and planned:
            spots = planned.pop(0)
            if not self._free(model, need.pieces, spots, idle):
                spots = None
        if spots is None:
            spots = self._best(model, need.pieces, idle, {}, 0)
        assert spots is not None, "pieces that were said to fit"
        for piece, spot in zip(need.pieces, spots, strict=True):
            self._put(model, piece, spot, idle)
        self.seated.append(_Seated(job, need, spots))

    def give_back(self, job: str, need: Need, idle: dict[str, int]) -> None:
        """Takes a need's pieces away again."""
        entry = next(s for s in self.seated if s.job == job and s.need == need)
        self.seated.remove(entry)
        for piece, spot in zip(need.pieces, entry.spots, strict=True):
            self.places[spot.position].pieces.remove((piece, spot.start))
        for position in {spot.position for spot in entry.spots}:
            place = self.places[position]
            left, place.pieces = place.pieces, []
            if place.base is None and place.cut is not None:
                idle[place.model] += 1
            place.cut = place.base
            for piece, start in left:
                self._put(place.model, piece, Spot(position, start), idle)

    def closable(self, model: str | None) -> int:
        """On how many GPUs of a model MIG may still be turned off."""
        return closable(self.present(), model)

    def close(self, job: str, need: Need, idle: int) -> int:
        """Turns MIG off where a whole-GPU need takes more than is idle, or a pattern has it so;
        returns on how many GPUs."""
        model = need.model or ""
        spots: list[Spot] = []
        planned = self._recipe.get((model, (WHOLE,)), [])
        while len(spots) < need.gpus and (planned or len(spots) < need.gpus - idle):
            spot = planned.pop(0)[0] if planned else self._cheapest(model)
            if spot is None:
                break
            if self.knife.places(self._cut(spot), WHOLE):
                self._put(model, WHOLE, spot, {})
                spots.append(spot)
        if spots:
            self._closed.append(_Seated(job, need, tuple(spots)))
        return len(spots)

    def reopen(self, job: str, need: Need) -> int:
        """Leaves MIG on after all where it was turned off for a need; returns on how many GPUs."""
        entry = next((s for s in self._closed if s.job == job and s.need == need), None)
        if entry is None:
            return 0
        self._closed.remove(entry)
        for spot in entry.spots:
            place = self.places[spot.position]
            place.cut, place.pieces = place.base, []
        return len(entry.spots)

    def closed_gpus(self, gpus: Sequence[int]) -> dict[str, tuple[int, ...]]:
        """GPUs on which MIG is turned off, by model. `gpus`: indices as for `tasks`."""
        found: defaultdict[str, list[int]] = defaultdict(list)
        for position, place in enumerate(self.places):
            if isinstance(place.cut, OffCut):
                found[place.model].append(gpus[position])
        return {model: tuple(sorted(indices)) for model, indices in found.items()}

    def _cut(self, spot: Spot) -> Cut:
        cut = self.places[spot.position].cut
        assert cut is not None
        return cut

    def _cheapest(self, model: str) -> Spot | None:
        """The GPU whose MIG mode is missed least."""
        ways = [
            (self._loss(after) - self._loss(place.cut), position)
            for position, place in enumerate(self.places)
            if place.cut is not None and place.model == model
            for _, after in self.knife.places(place.cut, WHOLE)
        ]
        return Spot(min(ways)[1], 0) if ways else None

    def _put(self, model: str, piece: Piece, spot: Spot, idle: dict[str, int]) -> None:
        place = self.places[spot.position]
        cut = place.cut
        if cut is None:
            cut = self.knife.opened(self._blanks[model], piece)
            assert cut is not None
            idle[model] -= 1
        place.cut = dict(self.knife.places(cut, piece))[spot.start]
        place.pieces.append((piece, spot.start))

    def _free(
        self, model: str, pieces: tuple[Piece, ...], spots: tuple[Spot, ...], idle: dict[str, int]
    ) -> bool:
        """Whether the spots of a pattern are still to be had."""
        now: dict[int, Cut | None] = {}
        left = idle.get(model, 0)
        for piece, spot in zip(pieces, spots, strict=True):
            cut = now.get(spot.position, self.places[spot.position].cut)
            if cut is None:
                blank = self._blanks.get(model)
                cut = self.knife.opened(blank, piece) if blank is not None and left else None
                left -= 1
            step = None if cut is None else dict(self.knife.places(cut, piece)).get(spot.start)
            if step is None:
                return False
            now[spot.position] = step
        return True

    def _best(
        self, model: str, pieces: tuple[Piece, ...], idle: dict[str, int],
        now: dict[int, Cut], opened: int,
    ) -> tuple[Spot, ...] | None:
        """Spots for all pieces: those that cost least first, others where that fails."""
        if not pieces:
            return ()
        cuts = {i: place.cut for i, place in enumerate(self.places) if place.cut is not None} | now
        order = sorted(cuts)
        options: list[tuple[bool, int, int, int, Cut]] = []
        for index, start, after in steps(
            self.knife, [cuts[i] for i in order], model, pieces[0]
        ):
            position = order[index]
            options.append(
                (False, self._loss(after) - self._loss(cuts[position]), position, start, after)
            )
        blank = self._blanks.get(model)
        if blank is not None and idle.get(model, 0) > opened:
            empty = self.knife.opened(blank, pieces[0])
            fresh = self._unopened(now, model)
            for start, after in self.knife.places(empty, pieces[0]) if empty is not None else ():
                options.append((True, self._loss(after), fresh, start, after))
        options.sort()
        for is_new, _, position, start, after in options:
            rest = self._best(
                model, pieces[1:], idle, {**now, position: after}, opened + is_new
            )
            if rest is not None:
                if position >= len(self.places):
                    self._grow(position, model)
                return (Spot(position, start), *rest)
        return None

    def _unopened(self, now: dict[int, Cut], model: str) -> int:
        for position, place in enumerate(self.places):
            if place.cut is None and position not in now and place.model == model:
                return position
        return max([len(self.places) - 1, *now]) + 1

    def _grow(self, position: int, model: str) -> None:
        while len(self.places) <= position:
            self.places.append(Place(model, None, None, []))

    def _loss(self, cut: Cut) -> int:
        assert self._profile is not None
        return self._profile.cut_cost(cut) + reconfiguration(cut)
