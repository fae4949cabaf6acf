"""What FLARE starts at the server for a run: the training loop, with the sites behind a `Transport`."""

from typing import Any

from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.signal import Signal

from .desk import Desk
from .messages import TOPIC, kit_of, settings_of
from .own import OwnFiles
from .transport import Flare


class Coordinator(Controller):  # type: ignore[misc]  # FLARE has no types
    """Does the rounds of a run that are left, into its folder at the server."""

    def __init__(self) -> None:
        super().__init__()
        self.desk = Desk()

    def start_controller(self, fl_ctx: FLContext) -> None:
        fl_ctx.get_engine().register_app_command(TOPIC, self._answer)

    def _answer(self, topic: str, question: Any, fl_ctx: FLContext) -> dict[str, Any]:
        return self.desk.answer(question if isinstance(question, dict) else {})

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        from .running import run_for  # torch, which FLARE's own start must not wait for

        settings, own = settings_of(fl_ctx), OwnFiles.read(kit_of(fl_ctx))
        transport = Flare(fl_ctx.get_engine(), settings["sites"], abort_signal, self.desk)
        try:
            run_for(settings, own, transport, self.desk)
        finally:
            transport.close()

    def stop_controller(self, fl_ctx: FLContext) -> None: ...
