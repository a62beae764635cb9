"""Conversion of a board to a dashboard of Grafana, with Grafana's typed builders.

The builders know the schema, so the type checker finds an unknown field or a wrong type.
"""

from __future__ import annotations

import json

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import prometheus, stat, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common, dashboard

from watch.dashboards.panel import Board, Panel

PUBLIC_RUNBOOKS = "/public/runbooks"
"""Address at which Grafana serves the runbooks under docker-compose.yml; the chart replaces it by ``alerts.runbookUrl``."""
TAG = "lancewal"
_SOURCE = dashboard.DataSourceRef(type_val="prometheus", uid="${datasource}")
_ALL = dashboard.VariableOption(selected=True, text="All", value="$__all")
_VARIABLES = (
    ("namespace", "Namespace", "label_values(lancewal_build_info, namespace)"),
    ("topic", "Topic", 'label_values(lancewal_table_info{namespace=~"$namespace"}, topic)'),
    ("table", "Table", 'label_values(lancewal_table_info{namespace=~"$namespace",topic=~"$topic"}, table)'),
    (
        "partition",
        "Partition",
        'label_values(lancewal_ingest_durable_position{namespace=~"$namespace",table=~"$table"}, partition)',
    ),
)


def text(board: Board) -> str:
    """Return the text of the dashboard file that Grafana loads."""
    return json.dumps(built(board), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def built(board: Board) -> dashboard.Dashboard:
    made = (
        builders.Dashboard(board.title)
        .uid(board.uid)
        .description(board.about)
        .tags([TAG])
        .editable()
        .tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
        .refresh("30s")
        .time("now-3h", "now")
        .timezone("browser")
        .with_variable(builders.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .link(
            builders.DashboardLink("lancewal")
            .type(dashboard.DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .keep_time(True)
            .include_vars(True)
            .as_dropdown(False)
        )
    )
    for name, label, query in _VARIABLES:
        made.with_variable(_variable(name, label, query))
    number = 0
    for section in board.sections:
        made.with_row(builders.Row(section.title).id(number := number + 1))
        for panel in section.panels:
            made.with_panel(
                _number(panel, number := number + 1) if panel.kind == "number" else _line(panel, number := number + 1)
            )
    return made.build()


def _variable(name: str, label: str, query: str) -> builders.QueryVariable:
    """Return a variable that by default selects everything, also series without the label.

    Outside Kubernetes no series has a namespace."""
    return (
        builders.QueryVariable(name)
        .label(label)
        .datasource(_SOURCE)
        .query({"query": query, "refId": name})
        .refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(dashboard.VariableSort.NUMERICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(_ALL)
    )


def _line(panel: Panel, number: int) -> timeseries.Panel:
    made = (
        timeseries.Panel()
        .id(number)
        .title(panel.title)
        .description(f"{panel.shows} {panel.advice}")
        .datasource(_SOURCE)
        .unit(panel.unit)
        .span(panel.width)
        .height(panel.height)
        .min(0)
        .fill_opacity(8)
        .show_points(common.VisibilityMode.NEVER)
        .legend(
            common_builders.VizLegendOptions()
            .display_mode(common.LegendDisplayMode.LIST)
            .placement(common.LegendPlacement.BOTTOM)
            .show_legend(True)
        )
        .thresholds(_thresholds(panel))
        .links(_links(panel))
    )
    if panel.limit is not None:
        made.thresholds_style(common_builders.GraphThresholdsStyleConfig().mode(common.GraphTresholdsStyleMode.DASHED))
    for query, ref in zip(panel.queries, "ABCDEFGH", strict=False):
        made.with_target(_query(query.filled, query.legend, ref))
    return made


def _number(panel: Panel, number: int) -> stat.Panel:
    made = (
        stat.Panel()
        .id(number)
        .title(panel.title)
        .description(f"{panel.shows} {panel.advice}")
        .datasource(_SOURCE)
        .unit(panel.unit)
        .span(panel.width)
        .height(panel.height)
        .graph_mode(common.BigValueGraphMode.AREA)
        .color_mode(common.BigValueColorMode.VALUE)
        .reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]))
        .thresholds(_thresholds(panel))
        .links(_links(panel))
    )
    for query, ref in zip(panel.queries, "ABCDEFGH", strict=False):
        made.with_target(_query(query.filled, query.legend, ref))
    return made


def _query(expression: str, legend: str, ref: str) -> prometheus.Dataquery:
    return prometheus.Dataquery().expr(expression).legend_format(legend).ref_id(ref).range()


def _thresholds(panel: Panel) -> builders.ThresholdsConfig:
    steps = [dashboard.Threshold(value=None, color="green")]
    if panel.limit is not None:
        steps.append(dashboard.Threshold(value=panel.limit, color="red"))
    return builders.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(steps)


def _links(panel: Panel) -> list[Builder[dashboard.DashboardLink]]:
    return [
        builders.DashboardLink(name)
        .type(dashboard.DashboardLinkType.LINK)
        .url(f"{PUBLIC_RUNBOOKS}/{name}.md")
        .target_blank(True)
        for name in panel.runbooks
    ]
