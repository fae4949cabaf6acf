"""What the two ends of FLARE's wire agree on: the parts of a message, and where a job's settings lie."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # it takes seconds to import, and who starts a run reads the names here before anything is checked
    from nvflare.apis.fl_context import FLContext

#: FLARE's name for our questions.
TOPIC = "allforone"
#: The bytes of a question or an answer; the seconds within which an answer is wanted; why there is none.
CONTENT, SECONDS, WHY = "bytes", "seconds", "why"

#: The file of a job with its settings. FLARE takes what is in braces in its own files for variables, so not there.
SETTINGS = "settings.json"


def settings_of(context: "FLContext") -> dict[str, Any]:
    """The plain values that came with the job of this process."""
    folder = Path(_workspace(context).get_app_config_dir(context.get_job_id()))
    return dict(json.loads((folder / SETTINGS).read_text(encoding="utf-8")))


def kit_of(context: "FLContext") -> Path:
    """The folder of the kit that this process runs from."""
    return Path(_workspace(context).get_root_dir())


def _workspace(context: "FLContext") -> Any:
    from nvflare.apis.fl_constant import FLContextKey

    return context.get_prop(FLContextKey.WORKSPACE_OBJECT)
