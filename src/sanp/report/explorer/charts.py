"""The explorer's three charts: what the answer is, where it breaks, and which channels fired."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from sanp.core.colours import BLUE, GREEN, GREY, ORANGE
from sanp.evaluation import Seen
from sanp.report.charts.style import DARK, LIGHT, axis_names, blank
from sanp.report.explorer.answers import Answer

MOST_ANSWERS = 5
"""classes shown"""
NARROW = {"l": 40, "r": 12, "t": 30, "b": 44}


def coloured(figure: go.Figure, dark: bool) -> go.Figure:
    """The figure with text and lines in the colours of a light or a dark page."""
    text, line = DARK if dark else LIGHT
    figure.update_layout(font_color=text)
    for update in (figure.update_xaxes, figure.update_yaxes):
        update(gridcolor=line, linecolor=line, tickcolor=line)
    return figure


def probabilities(answer: Answer, classes: Sequence[str], label: int | None) -> go.Figure:
    """The most probable classes; the true one, ``label``, is green where it is known."""
    order = np.argsort(-answer.probabilities, kind="stable")[:MOST_ANSWERS]
    figure = blank(70 + 30 * len(order), {**NARROW, "r": 56}, showlegend=False)  # room for the numbers beside the bars
    figure.add_trace(
        go.Bar(
            x=answer.probabilities[order],
            y=axis_names([classes[index] for index in order]),
            orientation="h",
            marker_color=[GREEN if index == label else BLUE if label is None else ORANGE for index in order],
            text=[f"{answer.probabilities[index]:.1%}" for index in order],
            textposition="outside",
            cliponaxis=False,
            hoverinfo="skip",
        )
    )
    figure.update_yaxes(autorange="reversed", type="category", showgrid=False)
    figure.update_xaxes(range=[0, 1], tickvals=[0, 0.5, 1], tickformat=".0%", title_text="probability")
    return figure


def over_budgets(answers: list[Answer], place: int, right: int, classes: Sequence[str]) -> go.Figure:
    """The probability of the class ``right`` under every setting, and a line at ``place``, where the slider stands."""
    figure = blank(260, NARROW)
    classes = axis_names(classes)
    shares = [answer.setting.kept for answer in answers]
    values = [float(answer.probabilities[right]) for answer in answers]
    figure.add_trace(
        go.Scatter(x=shares, y=values, mode="lines", line={"color": GREY}, showlegend=False, hoverinfo="skip")
    )
    for name, color, symbol, wanted in (
        (f"answer is {classes[right]}", GREEN, "circle", True),
        ("another answer", ORANGE, "x", False),
    ):
        chosen = [index for index, answer in enumerate(answers) if (answer.label == right) == wanted]
        figure.add_trace(
            go.Scatter(
                x=[shares[index] for index in chosen],
                y=[values[index] for index in chosen],
                text=[f"{classes[answers[index].label]}, this image {answers[index].kept:.1%}" for index in chosen],
                mode="markers",
                name=name,
                marker={"color": color, "size": 9, "symbol": symbol},
                hovertemplate="at %{x:.1%}: %{text}<extra></extra>",
            )
        )
    figure.add_vline(x=shares[place], line={"color": BLUE, "width": 2})
    figure.update_xaxes(title_text="mean cost set, of dense", tickformat=".0%", range=[0, 1.03])
    figure.update_yaxes(title_text=f"probability of {classes[right]}", tickformat=".0%", range=[-0.05, 1.05])
    return figure


def fired(seen: Seen) -> go.Figure:
    """A row for each layer, a cell for each channel, filled if it is computed; rows are stretched to one length."""
    masks = {name: mask[0].numpy() for name, mask in seen.open.items()}
    longest = max((len(mask) for mask in masks.values()), default=1)
    cells = np.array([mask[np.arange(longest) * len(mask) // longest] for mask in masks.values()])
    labels = [f"{name}  {int(mask.sum())}/{len(mask)}" for name, mask in masks.items()]
    figure = blank(80 + 26 * len(masks), NARROW)
    figure.add_trace(
        go.Heatmap(
            z=cells.astype(np.float32),
            y=labels,
            zmin=0,
            zmax=1,
            colorscale=[[0, "rgba(139,143,152,0.18)"], [1, BLUE]],
            showscale=False,
            ygap=3,
            hoverinfo="skip",
        )
    )
    figure.update_yaxes(autorange="reversed", type="category", showgrid=False)
    figure.update_xaxes(showticklabels=False, ticks="", showgrid=False, title_text="channels (filled: computed)")
    return figure
