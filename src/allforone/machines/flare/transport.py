"""Questions to the sites of a FLARE run: one request for each, in threads, since FLARE's multicast loses answers."""

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from ...errors import short
from ..transport import Absent, Reply
from .desk import Desk
from .messages import CONTENT, SECONDS, TOPIC, WHY

#: Seconds that a request may take on the way, beside those that the site is given.
ON_THE_WAY = 1.0

#: Sites that are asked at the same time.
MOST_AT_ONCE = 256
#: Letters of a site's own reason that are kept.
LONGEST_REASON = 100

_REASONS = {
    ReturnCode.TIMEOUT: "no answer in time",
    ReturnCode.TOPIC_UNKNOWN: "its process is starting",
}


class Flare:
    """The `Transport` of a run on FLARE, in the server's process of that run."""

    def __init__(self, engine: Any, names: Sequence[str], abort: Signal, desk: Desk) -> None:
        self.names: Sequence[str] = list(names)
        self._engine, self._abort, self._desk = engine, abort, desk
        self._threads = ThreadPoolExecutor(min(MOST_AT_ONCE, len(self.names)), thread_name_prefix="asks a site")

    def ask(self, questions: Mapping[str, bytes], deadline: float) -> Iterator[Reply]:
        """Every question is sent at once; the answers come in the order of `questions`."""
        sent = [self._threads.submit(self._timed, name, question, deadline) for name, question in questions.items()]
        for answer in sent:
            yield answer.result()

    def stopped(self) -> bool:
        """Whether the run is to end here. Every request then returns at once, as if nobody were there."""
        return bool(self._abort.triggered) or self._desk.anew.is_set()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _timed(self, name: str, question: bytes, deadline: float) -> Reply:
        begun = time.monotonic()
        return Reply(name, self._ask(name, question, deadline), time.monotonic() - begun)

    def _ask(self, name: str, question: bytes, deadline: float) -> bytes | Absent:
        if self.stopped():
            return Absent("the run was stopped")
        request = Shareable({CONTENT: question, SECONDS: deadline})
        try:
            with self._engine.new_context() as context:
                replies = self._engine.send_aux_request([name], TOPIC, request, deadline + ON_THE_WAY, context, True)
        except Exception as error:  # whatever FLARE raises, this site is absent and the others are asked
            return Absent(f"cannot be asked ({type(error).__name__})")
        return self._read(name, (replies or {}).get(name))

    def _read(self, name: str, reply: Any) -> bytes | Absent:
        code = reply.get_return_code(ReturnCode.OK) if isinstance(reply, Shareable) else None
        if code in (None, ReturnCode.COMMUNICATION_ERROR):
            self._desk.not_reached(name, takes_part=code is not None)
            return Absent("cannot be reached")
        self._desk.heard(name)
        if isinstance(answer := reply.get(CONTENT), bytes):
            return answer
        if isinstance(why := reply.get(WHY), str):
            return Absent(short(why, LONGEST_REASON))
        return Absent(_REASONS.get(code, f"cannot be asked ({code})"))
