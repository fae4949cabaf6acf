"""What training gives: every site's own model, and what can be asked of it afterwards."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import polars

from ..algorithms import Local
from ..reports import Reason, found_clusters, reason, write_report
from ..runs import Comparison, FinishedRun, Given, Result, carried, export_module, write_result


@dataclass(frozen=True)
class Trained(Result):
    """Every client's own model, who listened to whom, and how it went."""

    given: Given = field(default_factory=Given, repr=False)  #: those parts of the run that Python gave

    @property
    def finished(self) -> FinishedRun:
        """The same as reports read it."""
        clients = [member._asdict() for member in self.roster]
        metrics, sizes = carried(self.metrics), [member.size for member in self.roster]
        config = self.config.plain()
        return FinishedRun(
            self.config.shown, self.config.seed, metrics, self.tables, config, sizes, clients, (), self.history.sites
        )

    @property
    def steps(self) -> int:
        """Updates of each model so far, those before this run included."""
        before = ((self.config.identity or {}).get("start") or {}).get("step", 0)
        return int(before) + self.rounds * (self.config.inner or 1)

    @property
    def rounds(self) -> int:
        """How many were done; fewer than were planned where a callback ended the run."""
        return max(self.tables.rounds, default=0)

    def report(self, path: str | Path) -> Path:
        """Write a page that shows the run; one file that works offline.

        Example:
            >>> result.report("out/report.html")  # doctest: +SKIP
        """
        title = self.config.title or self.problem.name
        return write_report(Comparison(title, [self.finished], self.roster.clusters), Path(path))

    def export(self, client: int | str, folder: str | Path, onnx: bool = False) -> list[Path]:
        """A client's model, by its name or number, into a new folder: its weights, a script that loads them and, if
        asked, ONNX.

        Example:
            >>> result.export("Geneva", "out/geneva")  # doctest: +SKIP
        """
        number = self.number(client)
        title = f"Client {self.names[number] or number}"
        return export_module(self.model(number), self.problem, number, Path(folder), title, onnx=onnx)

    def save(self, folder: str | Path) -> Path:
        """Write all of it as a new run folder, for `afo.load` and the command line.

        Example:
            >>> result.save("out/run")  # doctest: +SKIP
        """
        return write_result(self, Path(folder))

    def clusters(self, round: int | None = None) -> list[list[str]]:
        """Who uses each other's gradients, by name or number: the clusters that the page shows of a round, by default
        the last.

        Example:
            >>> import allforone as afo
            >>> afo.train(afo.synthetic(clients=4), algorithm=afo.Oracle(), rounds=2).clusters()
            [['0', '2'], ['1', '3']]
        """
        return found_clusters(self.tables, self.names, round)

    def why(self, client: int | str, partner: int | str, round: int | None = None) -> Reason:
        """Why one client did or did not use another in a round, by default the last: a verdict and sentences.

        Example:
            >>> import allforone as afo
            >>> afo.train(afo.synthetic(clients=4), algorithm=afo.Oracle(), rounds=2).why(0, 2).verdict
            'used'
        """
        return reason(self.finished, self.number(client), self.number(partner), round)

    @cached_property
    def alone(self) -> "Trained":
        """The same run in which every client trains alone, on the same batches; made when it is first asked for."""
        from .again import again  # it makes what this is

        return again(self, {"algorithm": {"name": Local().name}, "label": None}, algorithm=Local())

    def gains(self, metric: str | None = None) -> polars.DataFrame:
        """By how much each client's model is better than the one it would have had alone, on its test data.

        For that every client is trained alone once, on the same batches. `metric` is "loss" or one of the run's own;
        by default the first of its own, else the loss. From `low` to `high` is Student's paired 95 % interval over
        parts of the test data; what is known exactly has no width.

        Example:
            >>> import allforone as afo
            >>> afo.train(afo.digits(clients=4), rounds=2).gains().columns
            ['client', 'site', 'metric', 'ours', 'alone', 'gain', 'low', 'high']
        """
        from .afterwards import gains  # it asks what this is

        return gains(self, self.alone, metric)

    def join(
        self, client: Any, rounds: int | None = None, out: str | Path | None = None, progress: bool | None = None
    ) -> "Trained":
        """A new site learns with everybody's help, by default for as many rounds; nobody else's model changes.

        It starts from the model with the least loss on its training data, and listens to whom the run's algorithm
        finds it should.

        Returns:
            The result with one client more, the last.

        Example:
            >>> larger = result.join(afo.Client(train, test, name="Bern"), rounds=20)  # doctest: +SKIP
        """
        from .afterwards import join

        return join(self, client, rounds, out, progress)

    def without(self, client: int | str, metric: str | None = None, progress: bool | None = None) -> Any:
        """What the others lose if a site leaves: the same run, in which it never takes part.

        Returns:
            `table`, how each of the others ends with and without it, and `result`, that run.

        Example:
            >>> result.without("Hospital B").table  # doctest: +SKIP
        """
        from .afterwards import without

        return without(self, client, metric, progress)
