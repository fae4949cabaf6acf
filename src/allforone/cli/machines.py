"""`allforone provision`, `allforone join` and `allforone serve`: parties that do not share data, on NVIDIA FLARE."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .screen import say

if TYPE_CHECKING:
    from ..machines.flare.launch import Launched
    from ..machines.flare.own import OwnFiles
    from ..machines.flare.provision import Kit
    from ..machines.flare.submit import Remote
    from ..machines.policy import Policy
    from ..problems import Client, Task
    from ..runs import Folder, RunConfig

TaskFile = Annotated[
    str, typer.Option(help="Your copy of the task, as [bold]task.py:task[/]; all parties have the same.")
]


#: The fleet of sites that do not share data.
FLARE = "flare"


def provision(
    federation: Annotated[Path, typer.Argument(help="A YAML file: name, host and port of the server, sites.")],
    out: Annotated[Path, typer.Option(help="A new folder, with one kit for each party.")] = Path("kits"),
) -> None:
    """Make the kits of a federation: certificates and policies for the server, each site and the coordinator.

    With federation.yaml being

      name: heart

      host: 127.0.0.1

      port: 8002

      sites: \\[geneva, basel]

    Example: allforone provision federation.yaml --out kits
    """
    from ..machines.flare.provision import provision as make_kits
    from ..machines.flare.provision import read_federation

    parties = read_federation(federation)
    make_kits(parties, out)
    say(f"The federation {parties.name}, with the server at {parties.host}:{parties.port}:")
    commands = {"server": "serve {} --task task.py:task --runs runs"}
    commands |= dict.fromkeys(parties.sites, "join {} --client my_site.py:client --task task.py:task")
    commands["coordinator"] = "run task.py:task --fleet flare:kit={}"
    for party, command in commands.items():
        say(f"  {out / party}: allforone {command.format(out / party)}")
    say("Each holds a private key: hand it to its party over a safe way, and delete it here.")


def join(
    kit: Annotated[Path, typer.Argument(help="The site's kit, from `allforone provision`.")],
    client: Annotated[str, typer.Option(help="This site's data, as [bold]my_site.py:client[/]: an afo.Client.")],
    task: TaskFile,
    audit: Annotated[
        Path | None, typer.Option(help="Where every question answered is written down; by default KIT/audit.jsonl.")
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(help="This site's own rules, a YAML file that no job can change; by default KIT/policy.yaml."),
    ] = None,
    check_only: Annotated[
        bool, typer.Option("--check", help="Load and check the data, say what would leave, stop.")
    ] = False,
) -> None:
    """Take part in a federation with the data of this site, which stay here.

    Example: allforone join kits/geneva --client my_site.py:client --task task.py:task
    """
    from ..machines.flare.own import load_checked, of_site, policy_of
    from ..machines.flare.provision import Kit, require_flare

    require_flare()
    opened = Kit.open(kit, "site")
    own = of_site(opened.path, task, client, audit, policy)
    _say_what_leaves(opened, own, policy_of(own), *load_checked(own))
    if check_only:
        return
    own.write(opened.path)
    _run(opened, "connected; waiting for runs. Ctrl-C leaves the federation.", lambda: None, nullcontext())


def serve(
    kit: Annotated[Path, typer.Argument(help="The server's kit, from `allforone provision`.")],
    task: TaskFile,
    runs: Annotated[Path, typer.Option(help="The folder in which the folders of runs lie.")] = Path("runs"),
) -> None:
    """Be the coordinator's server: sites join it, and runs go on in it, also after a crash or when a site is back.

    Example: allforone serve kits/server --task task.py:task --runs runs
    """
    from ..machines.flare.keeper import Keeper
    from ..machines.flare.own import load_task_of, of_server
    from ..machines.flare.provision import Kit, require_flare
    from ..machines.flare.serving import end_lost_jobs, keeper_link, prepare_server

    require_flare()
    opened = Kit.open(kit, "server")
    load_task_of(task)  # what cannot be loaded is said now, not when a run starts
    runs.mkdir(parents=True, exist_ok=True)
    prepare_server(opened, of_server(task, runs))
    address = f"{opened.federation.host}:{opened.federation.port}"
    ready = f"the server of {opened.federation.name} is up at {address}; Ctrl-C ends it."
    _run(opened, ready, partial(end_lost_jobs, opened), Keeper(keeper_link(opened), runs.resolve(), say))


def run_remotely(config: "RunConfig", out: Path) -> None:
    """`allforone run task.py:task --fleet flare:kit=…`: start it at the server of the federation, and follow it."""
    from ..errors import InputError
    from ..machines.flare.own import load_task_of
    from ..machines.flare.submit import Remote
    from ..runs import Given, prepare

    if given := config.problem.options:
        raise InputError(
            f"-p {', '.join(given)}: options of a problem deal data that one process has, and do not travel; in a "
            "federation data are at the sites, and each party has its own copy of the task: leave them out"
        )
    task = load_task_of(str(config.problem.name), config.seed)  # what cannot be loaded here would not be at the server
    filled = prepare(config, Given(problem=task)).config
    known = {key: getattr(filled, key) for key in ("rounds", "metrics", "title")}  # which `watch` shows
    remote = Remote(config.model_copy(update=known), out)
    _follow(remote, remote.start)


def resume_remotely(folder: "Folder") -> None:
    """`allforone resume` of such a run: start it again unless it is running, and follow it."""
    from ..machines.flare.submit import Remote
    from ..runs import parse

    remote = Remote(parse(folder.config, str(folder.path / "config.yaml")), folder.path)
    _follow(remote, lambda: remote.resume(say))


def _follow(remote: "Remote", begin: Callable[[], str]) -> None:
    """Start a run or find it, and show it to its end."""
    from ..errors import Stopped
    from ..machines.flare.own import load_task_of
    from ..progress import progress_of_rounds

    rounds = remote.config.rounds or load_task_of(str(remote.config.problem.name)).settings.rounds
    try:
        with remote.link, progress_of_rounds(rounds) as show:
            remote.follow(begin(), show, say)
    except KeyboardInterrupt:
        again = f"allforone resume {remote.out}"
        raise Stopped(f"no longer followed; the run goes on at the server. Follow it again with: {again}") from None


def _run(kit: "Kit", ready: str, before: Callable[[], None], meanwhile: AbstractContextManager[object]) -> None:
    """Keep FLARE running until Ctrl-C."""
    import signal

    from ..machines.flare.launch import Launched

    for ending in (signal.SIGINT, signal.SIGTERM):  # the second is how services and containers are ended
        signal.signal(ending, signal.default_int_handler)
    try:
        with Launched(kit, say, before) as launched:
            _wait_until_there(launched)
            say(ready)
            with meanwhile:
                launched.forever()
    except KeyboardInterrupt:
        say("ended.")


def _wait_until_there(launched: "Launched") -> None:
    waited, what = 0, "up" if launched.kit.role == "server" else "connected"
    while not launched.there.wait(10):
        waited += 10
        if waited in (10, 60) or waited % 600 == 0:
            say(f"not {what} after {waited} s; trying on (see {launched.log})")


def _say_what_leaves(kit: "Kit", own: "OwnFiles", policy: "Policy", task: "Task", client: "Client") -> None:
    federation = kit.federation
    numbers = sum(parameter.numel() for parameter in task.initial_model(0).parameters())
    others = [site for site in federation.sites if site != kit.name]
    say(f"This is {kit.name} of the federation {federation.name}, with {', '.join(others) or 'no other site'}.")
    say(f"  its data  {own.client}: {client.size} samples to train on, checked")
    say(f"  its task  {own.task}: a model of {numbers:,} numbers")
    say(f"What comes in, from the server {federation.host}:{federation.port}: models of all sites, and settings.")
    say("What goes out, to that server: gradients or displacements of such models, computed on these data; statistics")
    say("  of them; losses and metrics; how many samples there are, and a fingerprint of them.")
    say("  The server's owner can read all of it.")
    say(f"Its own rules, {own.policy or 'by default'}: {policy.told}.")
    say("What stays: the data, your files, your logs, the text of errors. No code is taken from outside.")
    say(f"Every answer is written down first, in {own.audit}; `allforone audit` sums it up.")
