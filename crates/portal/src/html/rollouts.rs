//! The page of rollouts: their waves, the end of a bake, the readings of gates, and who must approve.

use maud::{Markup, html};

use super::{
    layout::{Page, PageMode},
    parts::{code, commit, line, moment, notices, prose, writer},
};
use crate::{
    BegunRollout, RolloutProgress, RolloutView, RolloutsDocument, WaveStanding, WaveView, site_path,
};
use konverge_base::model::{StackId, rollout::RolloutPhase};
use konverge_forge::RepositoryPages;
use konverge_report::plural;

/// Renders the page of rollouts.
pub fn rollouts(document: &RolloutsDocument, forge: Option<&RepositoryPages>, mode: PageMode) -> String {
    let main = html! {
        (notices(&document.notices))
        @if document.rollouts.is_empty() && document.notices.is_empty() {
            p.empty { "There is no rollout. " (code("rollouts")) " in konverge.yaml says in which waves a change reaches its stacks." }
        }
        @for rollout in &document.rollouts { (section(rollout, forge)) }
    };
    Page {
        refreshes: true,
        ..Page::new("Rollouts", site_path::ROLLOUTS, mode, main)
    }
    .render()
}

fn section(rollout: &RolloutView, forge: Option<&RepositoryPages>) -> Markup {
    html! {
        section {
            @match &rollout.progress {
                RolloutProgress::NeverBegun { .. } => {
                    h2 { (line(&rollout.rollout)) }
                    p.facts { "The rollout has not started: no change of its stacks was merged since it was configured." }
                }
                RolloutProgress::Begun(begun) => {
                    h2 { (line(&rollout.rollout)) " " (phase(begun)) }
                    @if !rollout.configured { p.notice { "The rollout is no longer in konverge.yaml." } }
                    (self::begun(begun, forge))
                }
            }
        }
    }
}

fn phase(begun: &BegunRollout) -> Markup {
    let class = match begun.phase {
        RolloutPhase::Applying | RolloutPhase::Baking | RolloutPhase::Gate => "update",
        RolloutPhase::RollingBack | RolloutPhase::Aborted => "replace",
        RolloutPhase::Stopped => "failed",
        RolloutPhase::Done => "create",
    };
    html! {
        span.badge.(class) { (begun.phase.to_string()) }
        @if begun.paused { " " span.badge.replace { "paused" } }
    }
}

fn begun(begun: &BegunRollout, forge: Option<&RepositoryPages>) -> Markup {
    html! {
        @if begun.overdue {
            p.notice { "The rollout is overdue: no run has continued it. Start a run of the workflow by " (code("repository_dispatch")) " of the type " (code("konverge-continue")) "." }
        }
        p.facts {
            "Wave " (begun.wave) " of " (begun.waves.len()) " · commit " (commit(&begun.commit, forge))
            " · since " (moment(begun.since)) " by " (writer(&begun.writer, forge))
        }
        @if let Some(until) = begun.until { p { "The bake ends " (moment(until)) "." } }
        @if !begun.why.is_empty() { p { (prose(&begun.why)) } }
        @if !begun.gates.is_empty() {
            h3 { "The last results of the gates" }
            dl.record { @for (gate, said) in &begun.gates { dt { (line(gate)) } dd { (prose(said)) } } }
        }
        @if !begun.approve.is_empty() {
            h3 { "The rollout waits for people" }
            ul {
                @for (gate, digest) in &begun.approve {
                    li {
                        "Gate " (code(gate))
                        @if let Some(names) = begun.approvers.get(gate) { " waits for one of " (line(&names.join(", "))) }
                        @match digest {
                            Some(digest) => { ": digest " (code(&digest.to_string())) },
                            None => { ": no job has planned all stacks of the next wave" },
                        }
                    }
                }
            }
        }
        @if !begun.unplanned.is_empty() { p { "Not planned yet: " (links(begun.unplanned.iter())) } }
        @if !begun.held.is_empty() {
            p.note {
                "Held, because it failed or was aborted: " (links(begun.held.iter())) ". "
                "A newer change of one of these stacks or " (code("konverge rollout resume")) " lets it go on."
            }
        }
        ol.rows { @for wave in &begun.waves { (self::wave(wave, begun)) } }
    }
}

fn wave(wave: &WaveView, begun: &BegunRollout) -> Markup {
    let class = match wave.is {
        WaveStanding::Done => "create",
        WaveStanding::Now => "update",
        WaveStanding::Last => "replace",
        WaveStanding::Later => "gone",
    };
    let before = wave.wave.saturating_sub(1).max(begun.wave);
    html! {
        li.row {
            span.name { "Wave " (wave.wave) } " " span.badge.(class) { (wave.is.word()) }
            @if wave.is == WaveStanding::Later { " " span.where { "waits for wave " (before) } }
            p.facts {
                (plural(wave.stacks.len(), "changed stack"))
                @if let Some(bake) = &wave.bake { " · bakes for " (line(bake)) }
                @if !wave.gates.is_empty() { " · then gates " (line(&wave.gates.join(", "))) }
            }
            @if !wave.stacks.is_empty() { p.links { (links(wave.stacks.iter())) } }
        }
    }
}

fn links<'a>(stacks: impl Iterator<Item = &'a StackId>) -> Markup {
    html! {
        @for (index, stack) in stacks.enumerate() {
            @if index > 0 { ", " }
            a href=(site_path::stack(stack)) { (line(stack.as_str())) }
        }
    }
}
