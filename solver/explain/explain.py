"""explain(): the whole answer about waiting jobs, from a snapshot and the plan made for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

from trencadis.models import Job, Missing, Plan, PlanMismatchError, Snapshot, apply
from trencadis.models.collector import paused_collector
from trencadis.models.explanation import NEVER, Explanation, Reason, ReasonGroup, Report
from trencadis.models.order import in_order
from trencadis.models.reckoned import as_reckoned, reckoned
from trencadis.solver.capacity import capacity
from trencadis.solver.explain.ahead import competitors, freeable
from trencadis.solver.explain.alone import Alone
from trencadis.solver.explain.moved import impossible
from trencadis.solver.explain.place import place_of
from trencadis.solver.explain.reasons import Reasons, waiting
from trencadis.solver.explain.remedies import case_of, remedies
from trencadis.solver.explain.said import Said
from trencadis.solver.explain.scene import Scene, scene_of
from trencadis.solver.explain.sliced import in_pieces
from trencadis.solver.explain.starting import Outlook
from trencadis.solver.explain.starts import explain_placed
from trencadis.solver.spares import with_spares

RULES = frozenset(
    {
        Reason.DEPENDENCY,
        Reason.NOT_BEFORE,
        Reason.HELD_GPUS,
        Reason.KIND_OF_GPU,
        Reason.NEVER_UNDER_LIMIT,
        Reason.LIMIT,
        Reason.THROTTLE,
        Reason.LICENCE,
        Reason.STRICT_ORDER,
        Reason.LENDING,
    }
)
SHORT = frozenset(
    {Reason.NOT_ENOUGH_FREE, Reason.FRAGMENTED, Reason.CPU_MEMORY, Reason.TOPOLOGY}
)
ALONE = "no other waiting job takes the room that a remedy makes, where not said otherwise"


class Explainer:
    """Answers questions about one plan. Raises PlanMismatchError if it isn't the snapshot's,
    or isn't that of a round."""

    def __init__(self, snapshot: Snapshot, plan: Plan) -> None:
        self.snapshot, self.plan = in_order(snapshot), plan
        if plan.purpose != "round":
            raise PlanMismatchError("the plan only moves running jobs; a round says who waits")
        self.following = with_spares(reckoned(apply(self.snapshot, plan)))
        self.plan = plan = as_reckoned(plan, self.snapshot)
        self.snapshot = reckoned(self.snapshot)
        self.left = capacity(self.following)
        self.scene: Scene = scene_of(self.snapshot, plan, self.left)
        self.alone = Alone(
            self.following, place_of(self.following, self.scene.facts.fabric, self.left)
        )
        self.reasons = Reasons(self.scene)
        self.jobs = {job.name: job for job in self.snapshot.jobs}
        self._outlook: Outlook | None = None

    def job(self, name: str, help_: bool = True) -> Explanation:
        """Why the job waits, or why it is where it is. `help_`: with remedies and a start range.

        Raises KeyError if there is no such job.
        """
        job = self.jobs[name]
        if job.state != "pending" or name in self.scene.ledger.started:
            return explain_placed(self.reasons, self.plan, self.following, job)
        said = self.reasons.of(job)
        assumptions = [f"the plan is {self.plan.proof.status.value}"]
        if not help_:
            return _explanation(job, said, self._conflicts(job), "plan", assumptions)
        if said.code is Reason.OUTRANKED:
            said = competitors(self.scene, self.alone.base, job, said)
        case = case_of(self.scene, self.alone, job, said.code)
        found, none = remedies(self.scene, case, said.code)
        proof = _proof(said.code)
        if said.code in SHORT and not in_pieces(job):
            said = freeable(case, said)
            lost = impossible(case.base, case.place, job, case.models)
            proof = "moved" if lost else "alone-now"
            if not lost and not any(remedy.kind == "move" for remedy in found):
                proof = "open"
        if any(remedy.in_round is not True for remedy in found):
            assumptions.append(ALONE)
        if self._outlook is None:
            self._outlook = Outlook(self.reasons, self.following, self.left)
        best = next((remedy.at for remedy in found if remedy.kind == "wait"), None)
        return _explanation(job, said, self._conflicts(job), proof, assumptions).model_copy(
            update={
                "remedies": found,
                "no_remedy": dict(sorted(none.items())),
                "when": self._outlook.of(case, said.code, best),
            }
        )

    def groups(self) -> tuple[ReasonGroup, ...]:
        """Waiting jobs by reason, kind of request and queue; the most GPUs first."""
        found: defaultdict[tuple[object, ...], list[tuple[Job, Said]]] = defaultdict(list)
        for job in waiting(self.scene):
            said = self.reasons.of(job)
            key = (said.code, job.queue, job.request.gpus, job.minimum, job.gpu_models)
            found[key].append((job, said))
        groups = [
            ReasonGroup(
                code=entries[0][1].code.value,
                queue=entries[0][0].queue,
                sentence=entries[0][1].sentence,
                # Gangs that wait for a repair are asked about by their own names.
                jobs=tuple(
                    job.gang if isinstance(job, Missing) else job.name for job, _ in entries
                ),
                gpus=sum(job.minimum * job.request.gpus for job, _ in entries),
            )
            for entries in found.values()
        ]
        return tuple(sorted(groups, key=lambda g: (-g.gpus, -len(g.jobs), g.code, g.jobs)))

    def _conflicts(self, job: Job) -> tuple[str, ...]:
        return self.reasons.conflict(job)

    def report(
        self, names: Collection[str] = (), *, everyone: bool = False, help_: bool = True
    ) -> Report:
        """The answers about some jobs, or about all that wait in groups.

        With `everyone` and `help_` the first job of each group gets remedies as well.
        """
        proof = self.plan.proof
        with paused_collector():
            groups = self.groups() if everyone else ()
            asked: Sequence[str] = list(dict.fromkeys(names))
            if everyone and help_:
                asked = [group.jobs[0] for group in groups]
            jobs = tuple(self.job(name, help_) for name in asked)
        return Report(
            snapshot=self.plan.snapshot,
            now=self.plan.now,
            plan=f"{proof.status.value}, gap {proof.gap:.4%}, starts {len(self.plan.starts)}",
            jobs=jobs,
            groups=groups,
        )


def _proof(code: Reason) -> str:
    if code in RULES:
        return "rules"
    if code in NEVER or code in (Reason.OUTAGE, Reason.WINDOW):
        return "alone-empty"
    if code in (Reason.OUTRANKED, Reason.GROUP, Reason.NOT_WORTH_IT):
        return "plan"
    return "alone-now"


def _explanation(
    job: Job, said: Said, conflicts: tuple[str, ...], proof: str, assumptions: list[str]
) -> Explanation:
    return Explanation.model_validate(
        {
            "job": job.name,
            "queue": job.queue,
            "code": said.code.value,
            "sentence": said.sentence,
            "evidence": dict(said.evidence),
            "proof": proof,
            "conflicts": conflicts,
            "assumptions": tuple(assumptions),
        }
    )


def explain(
    snapshot: Snapshot,
    plan: Plan,
    names: Collection[str] = (),
    *,
    everyone: bool = False,
    help_: bool = True,
) -> Report:
    """Why jobs wait under a plan, what would help and when they may start.

    `names`: the jobs asked about; `everyone`: all that wait, in groups of the same reason. Raises
    KeyError for a job that isn't there, PlanMismatchError for another snapshot's plan.
    """
    return Explainer(snapshot, plan).report(names, everyone=everyone, help_=help_)
