//! Draws the durations in a run: as Mermaid for the job summary, as SVG for the page.

use std::{fmt::Write as _, time::Duration};

use maud::{Markup, html};

use super::{
    escape,
    labels::{plural, seconds},
};
use konverge_base::model::timeline::{HostRequests, PartKind, Timeline, TimelinePart};

/// The maximum number of stacks that are drawn, the slowest first.
const STACKS: usize = 15;

/// The maximum number of waits that are drawn, the longest first.
const WAITS: usize = 8;

/// The maximum number of hosts that are listed.
const HOSTS: usize = 10;

/// The minimum duration of a wait that is drawn.
const WORTH_DRAWING: Duration = Duration::from_millis(100);

/// A row of the picture.
struct Row<'a> {
    section: &'static str,
    label: String,
    part: &'a TimelinePart,
}

/// Returns the rows of the picture: the stages, the slowest stacks and the longest waits, each sorted by time.
fn rows(timeline: &Timeline) -> Vec<Row<'_>> {
    let slowest = |kind, most: usize| {
        let mut parts: Vec<_> = timeline.of(kind).collect();
        parts.sort_by_key(|part| std::cmp::Reverse(part.length));
        parts.truncate(most);
        parts.sort_by_key(|part| part.begin);
        parts
    };
    let stages = slowest(PartKind::Stage, usize::MAX);
    let stacks = slowest(PartKind::Stack, STACKS);
    let mut waits = slowest(PartKind::Wait, WAITS);
    waits.retain(|wait| wait.length >= WORTH_DRAWING);
    let of = |section, label: fn(&TimelinePart) -> String| {
        move |part| Row {
            section,
            label: label(part),
            part,
        }
    };
    let name = |part: &TimelinePart| part.name.clone();
    let work = |part: &TimelinePart| match &part.work {
        Some(work) => format!("{work} {}", part.name),
        None => part.name.clone(),
    };
    let stages = stages.into_iter().map(of("Stages", name));
    let stacks = stacks.into_iter().map(of("Slowest stacks", work));
    let waits = waits.into_iter().map(of("Waiting for", name));
    stages.chain(stacks).chain(waits).collect()
}

/// Returns the total duration and the time of the waits: `12.3 s, of it 4.0 s waiting for the lease of another run`.
fn headline(timeline: &Timeline) -> String {
    let mut waits: Vec<_> = timeline.waits().into_iter().collect();
    waits.retain(|(_, time)| *time >= WORTH_DRAWING);
    waits.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    let waits = waits
        .iter()
        .map(|(what, time)| format!("{} waiting for {what}", seconds(*time)));
    let parts = std::iter::once(seconds(timeline.length())).chain(waits);
    parts.collect::<Vec<_>>().join(", of it ")
}

/// Returns the requests to each host, the host with the most first.
fn hosts(timeline: &Timeline) -> Vec<(String, HostRequests)> {
    let mut hosts: Vec<_> = timeline.requests().into_iter().collect();
    hosts.sort_by_key(|(host, requests)| (std::cmp::Reverse(requests.count), *host));
    hosts.truncate(HOSTS);
    hosts
        .into_iter()
        .map(|(host, requests)| (host.to_owned(), requests))
        .collect()
}

fn left_out(timeline: &Timeline) -> Option<String> {
    let more = timeline.left_out;
    (more > 0).then(|| format!("{} more requests and waits were not kept.", more))
}

/// Renders the section of a job summary; empty if there is nothing to draw.
pub fn markdown(timeline: &Timeline) -> String {
    let rows = rows(timeline);
    if rows.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "\n<details><summary>What took how long: {}</summary>\n\n```mermaid\ngantt\n  dateFormat x\n  axisFormat %M:%S\n",
        escape::html(&headline(timeline))
    );
    let mut section = "";
    for row in &rows {
        if row.section != section {
            section = row.section;
            let _ = writeln!(text, "  section {section}");
        }
        let style = if row.part.kind == PartKind::Wait {
            "crit, "
        } else {
            ""
        };
        let (begin, end) = (
            row.part.begin.as_millis(),
            (row.part.begin + row.part.length).as_millis(),
        );
        let label = gantt_label(&row.label);
        let _ = writeln!(
            text,
            "  {label} ({}) :{style}{begin}, {}",
            seconds(row.part.length),
            end.max(begin + 1)
        );
    }
    text.push_str("```\n");
    let hosts = hosts(timeline);
    if !hosts.is_empty() {
        text.push_str("\n| requests to | | failed | longest | in all |\n|---|--:|--:|--:|--:|\n");
        for (host, requests) in hosts {
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} |",
                escape::cell(&host),
                requests.count,
                requests.failed,
                seconds(requests.longest),
                seconds(requests.time)
            );
        }
    }
    if let Some(more) = left_out(timeline) {
        let _ = writeln!(text, "\n{more}");
    }
    text.push_str("\n</details>\n");
    text
}

/// Returns the name of a bar. A `:` would end the name, and a `#` starts a comment, so both are replaced.
fn gantt_label(label: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || " ./_-".contains(c);
    escape::line(label)
        .chars()
        .map(|c| if plain(c) { c } else { '_' })
        .collect()
}

/// The height of a row in pixels.
const ROW: usize = 22;
/// The width of the column of names in pixels.
const NAMES: usize = 330;
/// The width of the bars in pixels.
const BARS: usize = 620;

/// Renders the section of the page; empty if there is nothing to draw.
pub(crate) fn page(timeline: &Timeline) -> Markup {
    let rows = rows(timeline);
    if rows.is_empty() {
        return html! {};
    }
    let all = timeline.length().as_secs_f64().max(0.001);
    let width = |time: Duration| time.as_secs_f64() / all * BARS as f64;
    let height = ROW * (rows.len() + 1);
    html! {
        section {
        details {
            summary { h2 { "What took how long" } " " (headline(timeline)) }
            div.graph tabindex="0" {
                svg.timeline viewBox={ "0 0 " (NAMES + BARS + 70) " " (height) } width=(NAMES + BARS + 70) height=(height)
                    role="img" aria-label={ "What took how long: " (headline(timeline)) } {
                    @for (at, row) in rows.iter().enumerate() {
                        @let top = at * ROW;
                        @let begin = NAMES as f64 + width(row.part.begin);
                        @let length = width(row.part.length).max(1.0);
                        g {
                            title { (row.section) ": " (row.label) ", " (seconds(row.part.length)) ", after " (seconds(row.part.begin)) }
                            text x="4" y=(top + 15) { (escape::line(&shortened(&row.label))) }
                            rect.(class_of(row.part.kind)) x=(format!("{begin:.1}")) y=(top + 4) width=(format!("{length:.1}")) height=(ROW - 8) rx="2" {}
                            text x=(format!("{:.1}", begin + length + 4.0)) y=(top + 15) { (seconds(row.part.length)) }
                        }
                    }
                    @for quarter in 0..5 {
                        text.axis x=(NAMES + BARS * quarter / 4) y=(height - 6) { (seconds(timeline.length() * quarter as u32 / 4)) }
                    }
                }
            }
            @for (host, requests) in hosts(timeline) {
                p.facts {
                    (escape::line(&host)) ": " (plural(requests.count, "request")) ", the longest " (seconds(requests.longest))
                    @if requests.failed > 0 { ", " (requests.failed) " failed" }
                }
            }
            @if let Some(more) = left_out(timeline) { p.facts { (more) } }
        }
        }
    }
}

fn class_of(kind: PartKind) -> &'static str {
    match kind {
        PartKind::Wait => "wait",
        PartKind::Stage => "stage",
        PartKind::Run | PartKind::Stack | PartKind::Request => "work",
    }
}

/// Shortens a name in its middle, so that it fits into its column.
fn shortened(name: &str) -> String {
    const MOST: usize = 44;
    let count = name.chars().count();
    if count <= MOST {
        return name.to_owned();
    }
    let (first, last): (String, String) = (
        name.chars().take(MOST / 2).collect(),
        name.chars().skip(count - MOST / 2 + 1).collect(),
    );
    format!("{first}…{last}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(kind: PartKind, name: &str, begin: u64, length: u64) -> TimelinePart {
        TimelinePart {
            kind,
            name: name.to_owned(),
            within: None,
            begin: Duration::from_millis(begin),
            length: Duration::from_millis(length),
            work: None,
            status: None,
            bytes: None,
        }
    }

    fn sample() -> Timeline {
        let stacks = (0..20).map(|n| TimelinePart {
            work: Some("plan".to_owned()),
            ..part(PartKind::Stack, &format!("shop:#/s{n:02}"), 1_000 + n, 100 * n)
        });
        let others = [
            part(PartKind::Run, "ci", 0, 12_000),
            part(PartKind::Stage, "what is affected", 0, 1_000),
            part(PartKind::Stage, "compile and plan", 1_000, 11_000),
            part(PartKind::Wait, "the lease of another run", 2_000, 4_000),
            part(PartKind::Wait, "readiness", 2_000, 3),
            TimelinePart {
                status: Some(500),
                ..part(PartKind::Request, "api.example|x", 100, 900)
            },
        ];
        Timeline {
            parts: others.into_iter().chain(stacks).collect(),
            left_out: 2,
        }
    }

    #[test]
    fn the_picture_of_a_summary_has_stages_slow_stacks_and_waits() {
        let text = markdown(&sample());
        for line in [
            "<summary>What took how long: 12 s, of it 4.0 s waiting for the lease of another run</summary>",
            "  section Stages\n  what is affected (1.0 s) :0, 1000\n  compile and plan (11 s) :1000, 12000\n",
            "  section Slowest stacks\n  plan shop__/s05 (0.5 s) :1005, 1505\n",
            "  section Waiting for\n  the lease of another run (4.0 s) :crit, 2000, 6000\n```\n",
            "| `api.example│x` | 1 | 1 | 0.9 s | 0.9 s |",
            "2 more requests and waits were not kept.",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert_eq!(text.matches("plan shop").count(), STACKS);
        assert_eq!(markdown(&Timeline::default()), "");
    }

    #[test]
    fn the_picture_of_the_page_has_a_bar_for_each_row() {
        let page = page(&sample()).into_string();
        assert_eq!(page.matches("<rect").count(), 2 + STACKS + 1);
        assert!(
            page.contains("<rect class=\"wait\" x=\"433.3\" y=\"378\" width=\"206.7\""),
            "{page}"
        );
        assert!(
            page.contains("api.example|x: 1 request, the longest 0.9 s, 1 failed"),
            "{page}"
        );
    }
}
