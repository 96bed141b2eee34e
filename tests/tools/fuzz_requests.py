"""Requests to the explorer's server for the fuzzer."""

import json
from importlib.util import find_spec
from pathlib import Path

from sanp.core.errors import SanpError
from tests.tools import mutate
from tests.tools.fuzz_target import Target

PATH = "/_dash-update-component"


def requests(run: Path) -> list[Target]:
    """What a browser asks of the explorer of a run; nothing if dash is not installed."""
    if find_spec("dash") is None:
        return []
    from sanp.report.explorer.app import make_explorer_app
    from sanp.report.explorer.explorer import Explorer

    explorer = Explorer(run)
    app = make_explorer_app(explorer)
    client = app.server.test_client()
    shown = json.loads(client.get("/_dash-dependencies").data)
    wanted = {each["output"]: each for each in shown if not each["clientside_function"]}
    values = {"others": 1, "image": {"position": 1}, "budget": 0, "dark": False, "upload": None}
    whole = [json.dumps(_body(output, each, values)).encode() for output, each in wanted.items()]
    path = run.parent / "request.json"

    def ask() -> None:
        answer = client.post(PATH, data=path.read_bytes(), content_type="application/json")
        assert answer.status_code != 500, answer.data[:200]
        if answer.status_code >= 400:
            raise SanpError(f"refused: {answer.status_code} {answer.data[:200]!r}")

    damage = [mutate.in_bytes, mutate.in_json, mutate.in_json]
    return [Target("page", whole, path, ask, damage, placed=False)]


def _body(output: str, found: dict[str, object], values: dict[str, object]) -> dict[str, object]:
    """A request as dash's own script makes it."""

    def given(parts: object) -> list[object]:
        return [_value(part, values) for part in parts]  # type: ignore[attr-defined]

    names = [part.rsplit(".", 1) for part in output.strip(".").split("...")]
    outputs = [{"id": name, "property": prop} for name, prop in names]
    inputs = given(found["inputs"])
    return {
        "output": output,
        "outputs": outputs if len(outputs) > 1 else outputs[0],
        "inputs": inputs,
        "changedPropIds": [f"{each['id']}.{each['property']}" for each in found["inputs"][:1]],  # type: ignore[index]
        "state": given(found["state"]),
    }


def _value(part: dict[str, str], values: dict[str, object]) -> object:
    if part["id"].startswith("{"):  # one of several: a list
        return [{"id": {"type": "pick", "position": 3}, "property": part["property"], "value": 1}]
    return {"id": part["id"], "property": part["property"], "value": values[part["id"]]}
