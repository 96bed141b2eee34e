"""`sanp explore`: a local page to try images on a run's network."""

from typing import Annotated

import typer

from sanp.cli.console import make_console
from sanp.cli.options import EngineDevice, PrecisionOption, RunArgument, with_network
from sanp.core.checks import require


@with_network
def explore(
    run: RunArgument,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the page; 0 for any free one.")] = 8050,
    precision: PrecisionOption = "fp32",
    device: EngineDevice = "auto",
) -> None:
    """Open a local page to try images on a run's network, and to see where a smaller budget breaks the answer."""
    from sanp.cli.target import engine_device
    from sanp.experiments.shipped import run_named

    place = engine_device(device, precision)
    require("explore", "plotly", "dash")
    from sanp.report.explorer.server import serve

    console = make_console()
    console.print("measuring what each budget costs ...")
    server, address = serve(run_named(run), port, precision, place)
    console.print(f"open {address} in a browser; end with Ctrl-C", soft_wrap=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()
