"""`outcast completion`: prints the script with which a shell completes outcast's command line."""

import click
from click.shell_completion import get_completion_class

from outcast.cli import shared, terminal
from outcast.errors import FeatureMissingError

VARIABLE = "_OUTCAST_COMPLETE"
"""The environment variable by which a shell asks click for completions."""


@shared.verb("completion", "outcast completion bash")
@click.argument("shell", type=shared.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the script with which a shell completes verbs, options and their values.

    For bash, add this line to ~/.bashrc: eval "$(outcast completion bash)". For zsh, add the same
    with zsh to ~/.zshrc. For fish, run once:
    outcast completion fish > ~/.config/fish/completions/outcast.fish
    """
    completion_class = get_completion_class(shell)
    assert completion_class is not None, "click knows the three shells that are offered"
    completion = completion_class(ctx.find_root().command, {}, "outcast", VARIABLE)
    try:
        terminal.echo(completion.source())
    except RuntimeError as error:
        # click runs bash to ask for its version.
        raise FeatureMissingError(f"no completion for {shell}: {error}") from None
