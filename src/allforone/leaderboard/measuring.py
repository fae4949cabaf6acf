"""The runs of one setting: what is there is used, what is missing is run."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from ..errors import InputError
from ..runs import Comparison, Job, Watch, compare, plan_entries, read_comparison
from .contestants import Contestant
from .settings import Setting

ShowProgress = Callable[[list[Job]], AbstractContextManager[Watch]]


def measure(
    setting: Setting, contestants: Sequence[Contestant], out: Path, progress: ShowProgress, workers: int | None = None
) -> tuple[Comparison, dict[str, str]]:
    """The comparison of those contestants that can take part, and why a run failed."""
    entries = [entry for contestant in contestants if (entry := contestant.entry(setting))]
    jobs = plan_entries(setting.base(), entries, list(setting.seeds), out, skip_impossible=True)
    with progress(jobs) as watch:
        failed = compare(jobs, out, resumed=True, workers=workers, watch=watch)
    if len(failed) == len(jobs):
        job, reason = next(iter(failed.items()))
        raise InputError(f"{setting.name}: no run came to its end; {job}: {reason}")
    asked = {(job.config.shown, job.config.seed) for job in jobs}
    found = read_comparison(out)
    return found._replace(runs=[run for run in found.runs if (run.algorithm, run.seed) in asked]), failed
