"""All that a page shows of one run: the headline, the charts and the pictures."""

from dataclasses import dataclass

from sanp.report.charts.channels import channel_choice
from sanp.report.charts.chart import Chart, Choice
from sanp.report.charts.dial_charts import dial_charts
from sanp.report.charts.gallery import Picture, gallery
from sanp.report.charts.headline import Headline, headline
from sanp.report.charts.image_costs import image_charts
from sanp.report.charts.layers import layer_charts
from sanp.report.charts.training import training
from sanp.report.run_data import RunData


@dataclass(frozen=True, kw_only=True, eq=False)
class RunSection:
    """One run's section of the page."""

    run: RunData
    headline: Headline
    training: Chart | None
    dial: list[Chart]
    """of a network that was trained for a range of budgets"""
    layers: list[Chart]
    images: list[Chart]
    """what each image costs"""
    cheapest: list[Picture]
    dearest: list[Picture]
    channels: Choice | None

    @property
    def charts(self) -> list[Chart]:
        """All charts that are always shown; those of ``channels`` are chosen by the reader."""
        return [*([self.training] if self.training else []), *self.dial, *self.layers, *self.images]


def run_section(run: RunData) -> RunSection:
    """Makes a run's charts."""
    cheapest, dearest = gallery(run.study) if run.study is not None else ([], [])
    return RunSection(
        run=run,
        headline=headline(run),
        training=training(run),
        dial=dial_charts(run),
        layers=layer_charts(run),
        images=image_charts(run),
        cheapest=cheapest,
        dearest=dearest,
        channels=channel_choice(run),
    )
