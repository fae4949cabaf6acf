"""What docs/leaderboard.md shows is what its committed summaries say."""

from pathlib import Path

from allforone.cli.leaderboard import MARK
from allforone.leaderboard.settings import SETTINGS
from allforone.leaderboard.summary import read
from allforone.leaderboard.table import written

FOLDER = Path(__file__).parents[2] / "docs" / "leaderboard"
ANEW = "write it anew: `allforone leaderboard NAME… --publish docs/leaderboard`"


def test_the_tables_of_the_page_are_those_of_the_committed_summaries():
    _, mark, below = FOLDER.with_suffix(".md").read_text(encoding="utf-8").partition(MARK)
    assert mark and below == "\n" + written(read(FOLDER), "markdown"), ANEW
    assert (FOLDER / "leaderboard.csv").read_text(encoding="utf-8") == written(read(FOLDER), "csv"), ANEW


def test_every_published_summary_is_of_the_setting_that_has_its_name_today():
    for summary in read(FOLDER):
        setting = SETTINGS[summary["setting"]]
        assert (summary["about"], summary["config"]) == (setting.about, setting.base()), ANEW
        assert {*summary["seeds"]} <= {*setting.seeds} and "local" in summary["contestants"]
