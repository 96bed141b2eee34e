"""`sanp explore`: a local page to try images on a run's network."""

from pathlib import Path
from typing import Annotated

import typer

from sanp.cli.console import make_console
from sanp.cli.target import with_network
from sanp.core.checks import require


@with_network
def explore(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the page; 0 for any free one.")] = 8050,
    precision: Annotated[str, typer.Option(help="What the engine computes in: fp32 or int8.")] = "fp32",
) -> None:
    """Open a local page to try images on a run's network, and to see where a smaller budget breaks the answer."""
    require("explore", "plotly", "dash")
    from sanp.report.explorer.server import serve

    console = make_console()
    console.print("measuring what each budget costs ...")
    server, address = serve(run, port, precision)
    console.print(f"open {address} in a browser; end with Ctrl-C", soft_wrap=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()
