"""The process at a site with its own code and data: it loads them, and answers one question after the other."""

import json
import os
import sys
from pathlib import Path
from typing import Any

from ...problems import with_settings
from ...runs.run import HELD_OUT
from ..audit import Audit
from ..site import Site
from . import frames
from .own import SPENT, OwnFiles, load_checked, policy_of
from .provision import Kit


def site_of(kit: Path, settings: dict[str, Any]) -> Site:
    """The site of a kit, as a run's plain settings want it; its files are its own."""
    config, seed = settings["config"], int(settings["config"]["seed"])
    number = list(settings["sites"]).index(Kit.open(kit, "site").name)
    own = OwnFiles.read(kit)
    task, client = load_checked(own, seed)
    asked = {key: config[key] for key in ("clip", "precision") if config.get(key)}
    task = with_settings(task, **asked)
    held_out = HELD_OUT if config.get("guard") else 0.0
    size = config.get("batch_size")
    return Site(
        task,
        client,
        number,
        seed=seed,
        batch_size=size,
        held_out=held_out,
        audit=Audit(own.audit),
        policy=policy_of(own),
        spent=kit / SPENT,
    )


def main() -> None:
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what the site's own code prints is no answer
    site = site_of(Path(sys.argv[1]), json.loads(sys.argv[2]))
    frames.send(answers, 0, b"ready")
    while (message := frames.receive(sys.stdin.buffer)) is not None:
        number, question = message
        frames.send(answers, number, site.answer(question))


if __name__ == "__main__":
    main()
