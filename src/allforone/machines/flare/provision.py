"""From a short file that names the parties to one folder for each, with its certificate and its policies."""

import json
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from ...errors import InputError, blaming, short
from ...opening import content_of
from ...runs.config import explain
from ...runs.plain_yaml import read as read_yaml
from . import policies

#: What a kit says of itself, in its folder: whose it is, and of which federation.
KIT = "kit.json"
#: The folder in the server's kit with which `serve` starts runs again by itself.
KEEPER = "keeper"
#: Letters of a site's name: it stands in a certificate.
LONGEST_NAME = 40
Role = Literal["server", "site", "coordinator"]


class Federation(BaseModel):
    """Who takes part, as federation.yaml says it."""

    model_config = ConfigDict(extra="forbid")
    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,40}$")
    host: str = Field("127.0.0.1", pattern=r"^[A-Za-z0-9]([A-Za-z0-9.-]{0,62}[A-Za-z0-9])?$")
    port: int = Field(8002, ge=1, le=65535)
    sites: list[str] = Field(min_length=1, max_length=policies.MOST_SITES)

    @field_validator("sites")
    @classmethod
    def _each_once(cls, sites: list[str]) -> list[str]:
        for site in sites:
            if not site or not site.replace("-", "").replace("_", "").isalnum() or not site.isascii():
                raise ValueError(f"names of letters, digits, - and _ ; '{short(site)}' has others")
            if len(site) > LONGEST_NAME:
                raise ValueError(f"names of at most {LONGEST_NAME} letters; '{short(site, 20)}' has {len(site)}")
        taken = {"server", "coordinator", KEEPER}
        for site in sites:
            if site.lower() in taken:
                raise ValueError(f"each site's own name; '{site}' is there twice, or is the name of another party")
            taken.add(site.lower())
        return sites


class Kit(BaseModel):
    """One party's folder: what `join`, `serve` and `run --fleet flare:kit=…` are given."""

    path: Path
    role: Role
    name: str  #: of the party
    federation: Federation

    @classmethod
    def open(cls, path: Path, role: Role) -> "Kit":
        """The kit in a folder, which must be that of the role that the command plays."""
        try:
            kit = cls(path=path.resolve(), **json.loads(content_of(path / KIT)))
        except (FileNotFoundError, NotADirectoryError):
            raise InputError(f"{path}: no kit there (no {KIT}); give a folder of `allforone provision`") from None
        except (ValueError, TypeError, RecursionError) as error:
            raise InputError(f"{path / KIT}: damaged ({type(error).__name__}); provision the federation anew") from None
        if kit.role != role:
            command = {"server": "serve", "site": "join", "coordinator": "run … --fleet flare:kit="}[kit.role]
            raise InputError(f"{path} is the kit of the {kit.role} {kit.name}: it is for `allforone {command}`")
        return kit


def read_federation(path: Path) -> Federation:
    """federation.yaml, checked; an error says which key and what was expected."""
    try:
        return Federation(**read_yaml(path))
    except ValidationError as error:
        raise InputError(explain(error, str(path), list(Federation.model_fields))) from None


def provision(federation: Federation, out: Path) -> list[Path]:
    """A kit for the server, for every site and for the coordinator, in the new folder `out`.

    The key that signed their certificates is not kept: nobody can make another one, and a federation that changes is
    provisioned anew.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} already exists and is not empty: nothing was overwritten; choose another --out")
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out, prefix=".making-") as work:
        made = _with_flare(federation, Path(work))
        kits = [_server(made, out / "server", federation), _coordinator(made, out / "coordinator", federation)]
        kits += [_site(made / site, out / site, federation) for site in federation.sites]
    return kits


def _with_flare(federation: Federation, work: Path) -> Path:
    """FLARE's own startup kits, by the name of the party."""
    try:
        from nvflare.lighter.constants import CtxKey
        from nvflare.lighter.entity import Project
        from nvflare.lighter.impl.cert import CertBuilder
        from nvflare.lighter.impl.static_file import StaticFileBuilder
        from nvflare.lighter.impl.workspace import WorkspaceBuilder
        from nvflare.lighter.provisioner import Provisioner
    except ImportError:
        raise missing_flare() from None

    project = Project(federation.name, "made by allforone")
    with blaming("FLARE refuses this federation"):
        project.set_server(federation.host, _ORGANISATION, {"fed_learn_port": federation.port})
        for site in federation.sites:
            project.add_client(site, _ORGANISATION, {})
        for admin in (user_name("coordinator"), user_name(KEEPER)):
            project.add_admin(admin, _ORGANISATION, {"role": "lead"})
    builders = [WorkspaceBuilder(), StaticFileBuilder(config_folder="config", scheme="grpc"), CertBuilder()]
    said = _Said()
    context = Provisioner(str(work), builders).provision(project, logger=said)
    if context.get(CtxKey.BUILD_ERROR):
        raise InputError(f"FLARE could not make the kits: {'; '.join(said.errors)}")
    return Path(context[CtxKey.CURRENT_PROD_DIR])


#: FLARE wants an organisation for each party; its rights here do not depend on it.
_ORGANISATION = "allforone"


def user_name(name: str) -> str:
    return f"{name}@{_ORGANISATION}.local"


class _Said:
    """What FLARE says while it works; only errors matter."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    def error(self, message: str) -> None:
        self.errors.append(message)

    def debug(self, message: str) -> None: ...

    info = warning = debug


def _server(made: Path, kit: Path, federation: Federation) -> Path:
    shutil.move(made / federation.host, kit)
    _local(kit, policies.server_rights(), None)
    shutil.move(made / user_name(KEEPER), kit / KEEPER)
    _only_mine(kit / KEEPER)
    return _said(kit, "server", federation.host, federation)


def _coordinator(made: Path, kit: Path, federation: Federation) -> Path:
    shutil.move(made / user_name("coordinator"), kit)
    return _said(kit, "coordinator", user_name("coordinator"), federation)


def _site(made: Path, kit: Path, federation: Federation) -> Path:
    shutil.move(made, kit)
    _local(kit, policies.site_rights(), policies.site_resources())
    return _said(kit, "site", made.name, federation)


def _local(kit: Path, rights: dict[str, Any], resources: dict[str, Any] | None) -> None:
    """Our policies in the place of FLARE's; `serve` writes the server's resources when it knows where they lie."""
    local = kit / "local"
    for name in ("authorization.json.default", "resources.json.default", "privacy.json.sample"):
        (local / name).unlink(missing_ok=True)
    (local / "authorization.json").write_text(json.dumps(rights, indent=2))
    if resources is not None:
        (local / "resources.json").write_text(json.dumps(resources, indent=2))
    for script in (kit / "startup").glob("*.sh"):
        script.unlink()  # they take whatever python3 is on the PATH; `serve` and `join` start with their own


def _said(kit: Path, role: Role, name: str, federation: Federation) -> Path:
    said = {"role": role, "name": name, "federation": federation.model_dump()}
    (kit / KIT).write_text(json.dumps(said, indent=2))
    (kit / "readme.txt").unlink(missing_ok=True)
    _only_mine(kit)
    return kit


def _only_mine(kit: Path) -> None:
    kit.chmod(0o700)  # it holds a private key


def missing_flare() -> InputError:
    return InputError("NVIDIA FLARE is not installed: pip install 'allforone[flare]'")


def require_flare() -> None:
    if find_spec("nvflare") is None:
        raise missing_flare()
