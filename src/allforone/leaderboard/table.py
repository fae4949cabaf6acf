"""The leaderboard as tables: one for each setting, one over all of them, and one with all digits."""

from collections.abc import Sequence
from typing import Any

from ..catalogue import FORMATS
from ..reports.table import Cell, Table, plain
from ..runs.quantities import UNKNOWN, Quantity
from .contestants import ALONE, label
from .scores import Score
from .summary import Summary, quantity_of, scores_of

RULE = (
    "Each site's own model on its own test data, mean over sites and seeds. last: in the last round. validated: in the "
    "round of least loss on the held-out share of the training data. worst: the worst site in the last round. worse "
    "off: sites that did worse than alone in the last round, over all seeds. vs alone: the difference, paired over "
    "sites and seeds; in the brackets lie all true differences of a table with 95 %. samples: drawn per client. "
    "messages, MB: of all clients together."
)
SECONDS_RULE = "s: seconds of training on one core, by the clock."
#: The columns of what a contestant took; seconds, too, where they are known.
COSTS = ("samples", "messages", "MB")
OVERALL_RULE = (
    "rank: mean over settings, by the last round. first: in how many it is that. better, worse: in how many the whole "
    "interval of the difference to training alone says so. worse off: sites that did worse than alone, over all "
    "settings and seeds."
)

GROUP_RULE = "The last round, as in the tables below. Of several contestants that are equally good, all are bold."


def setting_table(summary: Summary, form: str = "terminal") -> Table:
    """For the terminal with the contestants' names, else with their labels."""
    quantity, found, published = quantity_of(summary), scores_of(summary), summary["published"]
    first = {key: _first(found, key, quantity) for key in ("last", "validated")}
    timed = _timed(summary)
    rows = [
        [
            Cell(name if form == "terminal" else label(name)),
            Cell(UNKNOWN if score.rank is None else str(score.rank)),
            *(Cell(quantity.shown(getattr(score, key)), first[key] == name) for key in first),
            Cell(quantity.shown(score.worst)),
            Cell(_share(score.worse_off, score.judged, name)),
            Cell(_interval(score, quantity)),
            *([Cell(_printed(published["numbers"].get(name)))] if published else []),
            *map(Cell, _costs(score)),
            *([Cell(UNKNOWN if score.seconds is None else f"{score.seconds:.1f}")] if timed else []),
        ]
        for name, score in found.items()
    ]
    return Table(
        [
            *("algorithm", "rank", "last", "validated", "worst", "worse off", "vs alone"),
            *(*(["published"] if published else []), *COSTS, *(["s"] if timed else [])),
        ],
        rows,
        title=f"{summary['setting']}: {_described(summary)}",
        caption=" ".join(_notes(summary, found)),
    )


def rule(summaries: Sequence[Summary]) -> str:
    """What the columns are."""
    return f"{RULE} {SECONDS_RULE}" if any(map(_timed, summaries)) else RULE


def narrow(table: Table) -> list[Table]:
    """The table of a setting as two that fit a terminal: how good contestants are, and what they cost."""
    cut = [*table.heads].index(COSTS[0])
    costs = [[row[0], *row[cut:]] for row in table.rows]
    return [
        table._replace(heads=table.heads[:cut], rows=[row[:cut] for row in table.rows]),
        Table(["algorithm", *table.heads[cut:]], costs, f"{table.title.partition(':')[0]}: cost"),
    ]


def _described(summary: Summary) -> str:
    said = f"{summary['about']}; {summary['rounds']} rounds, seeds {_listed(summary['seeds'])}"
    return f"{quantity_of(summary).head}; {said}"


def _first(found: dict[str, Score], key: str, quantity: Quantity) -> str | None:
    """The best of those who are ranked."""
    values = {name: getattr(score, key) for name, score in found.items() if score.rank is not None}
    known = {name: value for name, value in values.items() if value is not None}
    sign = 1 if quantity.lower_is_better else -1
    return min(known, key=lambda name: sign * known[name], default=None)


def _notes(summary: Summary, found: dict[str, Score]) -> list[str]:
    """What a reader must know beside the numbers."""
    said = []
    for name, score in found.items():
        if missing := [seed for seed in summary["seeds"] if seed not in score.seeds]:
            said.append(f"{name} is without seeds {_listed(missing)}.")
    if left_out := summary.get("not_run"):  # summaries of older versions do not say
        said.append(f"Not run: {', '.join(left_out)}.")
    if published := summary["published"]:
        others = [f"{name} {_printed(pair)}" for name, pair in published["numbers"].items() if name not in found]
        said.append(f"published: {published['source']}, {published['rule']}.")
        said += [f"Published only: {', '.join(others)}."] if others else []
    return said


def overall_table(summaries: Sequence[Summary], form: str = "terminal") -> Table:
    """Over all settings: mean rank, and how often a contestant is first, better and worse than training alone."""
    by_name: dict[str, list[Score]] = {}
    for summary in summaries:
        for name, score in scores_of(summary).items():
            by_name.setdefault(name, []).append(score)
    ranks = {name: _mean([s.rank for s in found if s.rank is not None]) for name, found in by_name.items()}
    best = min((rank for rank in ranks.values() if rank is not None), default=None)
    order = sorted(by_name, key=lambda name: (ranks[name] is None, ranks[name] or 0.0))
    rows = []
    for name in order:
        found, rank, alone = by_name[name], ranks[name], name == ALONE
        rows.append(
            [
                Cell(name if form == "terminal" else label(name)),
                Cell(UNKNOWN if rank is None else f"{rank:.1f}", rank is not None and rank == best),
                Cell(UNKNOWN if rank is None else str(sum(score.rank == 1 for score in found))),
                Cell(UNKNOWN if alone else str(sum(score.low is not None and score.low > 0 for score in found))),
                Cell(UNKNOWN if alone else str(sum(score.high is not None and score.high < 0 for score in found))),
                Cell(_share(sum(score.worse_off or 0 for score in found), sum(s.judged for s in found), name)),
                Cell(str(len(found))),
            ]
        )
    heads = ["algorithm", "rank", "first", "better", "worse", "worse off", "settings"]
    return Table(heads, rows, "all settings")


def groups(summaries: Sequence[Summary], form: str = "terminal") -> list[tuple[str, Table]]:
    """The last rounds of settings that differ in how data are dealt side by side, by the name of what is dealt."""
    found: dict[str, list[Summary]] = {}
    for summary in summaries:
        problem = summary["config"]["problem"]
        poor = ", few samples" if problem.get("samples_per_client") else ""
        found.setdefault(f"{problem['name']}{poor}", []).append(summary)
    return [(name, _side_by_side(name, each, form)) for name, each in found.items() if len(each) > 1]


def _side_by_side(name: str, summaries: Sequence[Summary], form: str) -> Table:
    """A row for each contestant in the order of their mean ranks, a column for each setting."""
    order = [row[0].text for row in overall_table(summaries).rows]
    columns = [(scores_of(summary), quantity_of(summary)) for summary in summaries]
    rows = [
        [
            Cell(each if form == "terminal" else label(each)),
            *(
                Cell(quantity.shown(score.last), score.rank == 1) if (score := scores.get(each)) else Cell(UNKNOWN)
                for scores, quantity in columns
            ),
        ]
        for each in order
    ]
    return Table(["algorithm", *(summary["setting"] for summary in summaries)], rows, name)


def all_digits(summaries: Sequence[Summary]) -> Table:
    """For further computing, a row for each setting and contestant: percentages are shares, what is not known empty."""
    rows = [
        [
            *(summary["setting"], summary["metric"], name),
            *(_written(value) for value in score),
            *(
                _written(value)
                for value in (summary["published"] or {"numbers": {}})["numbers"].get(name, (None, None))
            ),
        ]
        for summary in summaries
        for name, score in scores_of(summary).items()
    ]
    return Table(
        ["setting", "metric", "contestant", *Score._fields, "published_percent", "published_deviation"], plain(rows)
    )


def written(summaries: Sequence[Summary], form: str) -> str:
    """All tables as one text: markdown, latex or csv."""
    if form == "csv":
        return str(FORMATS[form](all_digits(summaries)))
    head = "### {}\n\n{}\n\n" if form == "markdown" else "% {}\n% {}\n"
    texts = [head.format(s["setting"], _described(s)) + FORMATS[form](setting_table(s, form)) for s in summaries]
    if len(summaries) > 1:
        texts = [
            head.format("All settings", OVERALL_RULE) + FORMATS[form](overall_table(summaries, form)),
            *(
                head.format(f"All of {name}", GROUP_RULE) + FORMATS[form](table)
                for name, table in groups(summaries, form)
            ),
            *texts,
        ]
    return "\n".join([*([f"{rule(summaries)}\n"] if form == "markdown" else []), *texts])


def _share(count: int | None, of: int, name: str) -> str:
    return UNKNOWN if count is None or name == ALONE else f"{count}/{of}"


def _interval(score: Score, quantity: Quantity) -> str:
    if score.difference is None:
        return UNKNOWN
    scale = 100 if quantity.percent else 1
    ends = [UNKNOWN if end is None else f"{scale * end:+.{quantity.digits}f}" for end in (score.low, score.high)]
    return f"{scale * score.difference:+.{quantity.digits}f} [{', '.join(ends)}]"


def _costs(score: Score) -> list[str]:
    counted = [UNKNOWN if number is None else f"{number:.0f}" for number in (score.samples, score.messages)]
    megabytes = UNKNOWN if score.bytes is None else f"{score.bytes / 1e6:.1f}"
    return [*counted, megabytes]


def _timed(summary: Summary) -> bool:
    return any(score.seconds is not None for score in scores_of(summary).values())


def _printed(pair: Sequence[float] | None) -> str:
    return UNKNOWN if pair is None else f"{pair[0]:.2f} ± {pair[1]:.2f}"


def _listed(seeds: Sequence[int]) -> str:
    """0, 1, 2, … , 19 as 0–19."""
    run = len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[-1] + 1))
    return f"{seeds[0]}–{seeds[-1]}" if run else ", ".join(map(str, seeds))


def _mean(values: Sequence[int]) -> float | None:
    return sum(values) / len(values) if values else None


def _written(value: Any) -> str:
    return "" if value is None else " ".join(map(str, value)) if isinstance(value, list) else str(value)
