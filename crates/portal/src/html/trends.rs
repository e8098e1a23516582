//! The page of trends: four numbers over the last weeks, as SVG charts and as a table.

use std::time::Duration;

use maud::{Markup, html};

use super::layout::{Page, PageMode};
use crate::{TrendWeek, Trends, site_path};
use konverge_report::age;

/// The width of a chart.
const WIDTH: usize = 390;
/// The height of the highest bar.
const HEIGHT: u64 = 90;
/// The space above the highest bar, for its value.
const TOP: u64 = 18;

/// A chart of one number for each week.
struct Trend<'a> {
    title: &'a str,
    /// The explanation below the title: what the number measures.
    says: &'a str,
    class: &'a str,
    value: fn(&TrendWeek) -> Option<u64>,
    words: fn(u64) -> String,
}

const TRENDS: [Trend<'_>; 4] = [
    Trend {
        title: "Applies",
        says: "Applies of these stacks that did not fail.",
        class: "good",
        value: |week| Some(week.applies),
        words: |count| count.to_string(),
    },
    Trend {
        title: "Failures",
        says: "Applies of these stacks that failed.",
        class: "bad",
        value: |week| Some(week.failures),
        words: |count| count.to_string(),
    },
    Trend {
        title: "From merge to applied",
        says: "The mean time from the commit on the default branch to the end of its apply.",
        class: "plain",
        value: |week| week.lead_seconds,
        words: duration,
    },
    Trend {
        title: "Oldest drift",
        says: "The time for which the oldest drift was known at the last check of the week.",
        class: "warn",
        value: |week| week.oldest_drift_seconds,
        words: duration,
    },
];

fn duration(seconds: u64) -> String {
    match seconds {
        0 => "none".to_owned(),
        seconds => age(Duration::from_secs(seconds)),
    }
}

/// Renders the page of trends.
pub fn trends(trends: &Trends, mode: PageMode) -> String {
    let main = html! {
        p.facts { "The last " (trends.weeks.len()) " weeks, each from Monday in UTC; the last one is not over. The numbers come from the records of applies and drift checks." }
        div.trends {
            @for trend in &TRENDS { (figure(trend, &trends.weeks)) }
        }
        section {
            h2 { "The numbers" }
            (table(&trends.weeks))
        }
    };
    Page {
        refreshes: true,
        ..Page::new("Trends", site_path::TRENDS, mode, main)
    }
    .render()
}

fn figure(trend: &Trend<'_>, weeks: &[TrendWeek]) -> Markup {
    let now = weeks.last().and_then(trend.value);
    html! {
        figure {
            h2 { (trend.title) }
            p.verdict { @match now { Some(value) => { ((trend.words)(value)) " this week" }, None => "nothing recorded this week" } }
            (picture(trend, weeks))
            figcaption.facts { (trend.says) }
        }
    }
}

/// Renders a chart with a bar for each week. A week without data has no bar; a week with the value 0 has a line.
fn picture(trend: &Trend<'_>, weeks: &[TrendWeek]) -> Markup {
    let most = weeks.iter().filter_map(trend.value).max().unwrap_or(0);
    let step = WIDTH / weeks.len().max(1);
    let base = TOP + HEIGHT;
    let label = match most {
        0 => format!("{} by week: none", trend.title),
        most => format!("{} by week, at most {}", trend.title, (trend.words)(most)),
    };
    html! {
        svg.trend.(trend.class) viewBox={ "0 0 " (WIDTH) " " (base + 22) } role="img" aria-label=(label) {
            line x1="0" x2=(WIDTH) y1=(base) y2=(base) {}
            @if most > 0 { text x="0" y="12" { "at most " ((trend.words)(most)) } }
            @for (index, week) in weeks.iter().enumerate() {
                @if let Some(value) = (trend.value)(week) {
                    // A value above 0 must be visible, however small it is.
                    @let height = match value { 0 => 0, value => (value.saturating_mul(HEIGHT) / most.max(1)).max(2) };
                    rect x=(index * step + 3) y=(base - height) width=(step - 6) height=(height) rx="2" {
                        title { "Week of " (week.monday) ": " ((trend.words)(value)) }
                    }
                }
            }
            @if let (Some(first), Some(last)) = (weeks.first(), weeks.last()) {
                text x="0" y=(base + 16) { (first.monday) }
                text.end x=(WIDTH) y=(base + 16) { (last.monday) }
            }
        }
    }
}

fn table(weeks: &[TrendWeek]) -> Markup {
    html! {
        div.table tabindex="0" role="region" aria-label="The numbers by week" {
            table {
                thead {
                    tr {
                        th scope="col" { "Week of" }
                        @for trend in &TRENDS { th scope="col" { (trend.title) } }
                        th scope="col" { "Stacks with drift" }
                    }
                }
                tbody {
                    @for week in weeks.iter().rev() {
                        tr {
                            th scope="row" { (week.monday) }
                            @for trend in &TRENDS { td { @if let Some(value) = (trend.value)(week) { ((trend.words)(value)) } } }
                            td { @if let Some(drifted) = week.drifted { (drifted) } }
                        }
                    }
                }
            }
        }
    }
}
