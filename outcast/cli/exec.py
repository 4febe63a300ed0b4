"""`outcast exec`: one command in a host of the network, and its exit status."""

import json
import sys
from pathlib import Path
from typing import Literal

import click

from outcast import units
from outcast.cli import shared, terminal
from outcast.errors import ConfigError


class _Exec(click.Command):
    """Says where `--` is missing, if an option of the command was read as an option of outcast."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        separated = "--" in args
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if separated:
                raise
            text = f"{error.format_message()} Before a command with options of its own, write --"
            raise click.UsageError(text, ctx) from None


@shared.verb(
    "exec",
    "outcast exec configs/linear-12.yaml -- ip addr",
    "outcast exec configs/linear-12.yaml --host h2 -- ping -c 3 {h1}",
    cls=_Exec,
)
@click.argument("config", type=click.Path(path_type=Path))
@click.argument("command_line", metavar="-- COMMAND...", nargs=-1, type=click.UNPROCESSED)
@shared.option("--host HOST", "Where it runs [default: the topology's first host].")
@shared.engine
@shared.option(
    "--deadline TIME", "How long the command may take, by the engine's clock.", default="10min"
)
@shared.flag(
    "--json",
    "Print one object with status, stdout, stderr and crash when the command has ended.",
    "as_json",
)
@shared.overrides
def command(
    config: Path,
    command_line: tuple[str, ...],
    host: str | None,
    engine: str | None,
    deadline: str,
    as_json: bool,
    overrides: tuple[str, ...],
) -> int:
    """Run one command in a host of CONFIG's network.

    Its output is passed on, and its exit status is that of this verb (128 and the number for a
    signal). An error of the verb itself has one line that begins with `outcast:`.

    Flows, workloads and clients of CONFIG do not run; its servers do. {h1} is the address of
    host h1.
    """
    from outcast.api import making

    shared.end_as_interrupted()
    deadline_s = shared.parsed("--deadline", deadline, units.parse_time_ns) / 1e9
    if deadline_s <= 0:
        raise ConfigError(f"--deadline: {deadline}: allowed is a time above 0")
    chosen = shared.chosen(config, engine, overrides).experiment

    def on_output(stream: Literal["out", "err"], data: bytes) -> None:
        to = sys.stdout.buffer if stream == "out" else sys.stderr.buffer
        to.write(data)
        to.flush()

    seen = None if as_json else on_output
    executed = making.exec_in(chosen, command_line, host, deadline_s=deadline_s, on_output=seen)
    if as_json:
        written = {"stdout": executed.stdout, "stderr": executed.stderr}
        texts = {name: data.decode(errors="replace") for name, data in written.items()}
        told = {"status": executed.status, **texts, "crash": executed.crash}
        terminal.echo(json.dumps(told))
    return executed.status if executed.status >= 0 else 128 - executed.status
