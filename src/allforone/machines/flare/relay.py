"""What FLARE starts at a site for a run: it passes questions to a child process and answers back, bytes for bytes.

It imports neither torch nor the site's own files, so that nothing of theirs can end it: FLARE fails the run of all
sites when this process dies at one.
"""

import json
import sys
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from .keeping import Kept, Unanswered
from .messages import CONTENT, SECONDS, TOPIC, WHY, kit_of, settings_of


class Relay(Executor):  # type: ignore[misc]  # FLARE has no types
    """Passes on what the coordinator asks this site."""

    def __init__(self) -> None:
        super().__init__()
        self._child: Kept | None = None

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type == EventType.START_RUN:
            self._child = child_of(kit_of(fl_ctx), settings_of(fl_ctx))
            self._child.start()
            fl_ctx.get_engine().register_aux_message_handler(TOPIC, self._answer)
        elif event_type in (EventType.ABOUT_TO_END_RUN, EventType.END_RUN) and self._child is not None:
            child, self._child = self._child, None
            child.stop()

    def _answer(self, topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:
        try:
            if self._child is None:
                raise Unanswered("the run is over")
            answer = self._child.ask(request[CONTENT], float(request[SECONDS]))
        except Unanswered as error:
            return Shareable({WHY: str(error)})
        return Shareable({CONTENT: answer})

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """FLARE's own tasks are not used."""
        return make_reply(ReturnCode.TASK_UNKNOWN)


def child_of(kit: Path, settings: dict[str, Any]) -> Kept:
    """The process with the site's own code and data, of the interpreter that runs this one."""
    command = [sys.executable, "-m", "allforone.machines.flare.child", str(kit), json.dumps(settings)]
    return Kept(command, kit / "child.log")
