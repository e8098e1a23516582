//! The small parts that several pages use.

use jiff::Timestamp;
use maud::{Markup, html};

pub(super) use konverge_report::html::elements::{code, line, prose, text};
use konverge_report::{escape, time};

use crate::{LeaseView, StackCondition, Writer, operation::shell_word};
use konverge_base::model::CommitId;

/// A time. The script adds how long ago it was.
pub(super) fn moment(at: Timestamp) -> Markup {
    html! { time datetime=(at.strftime("%Y-%m-%dT%H:%M:%SZ")) { (time(at)) } }
}

/// Who did it, and where that can be looked at.
pub(super) fn writer(writer: &Writer) -> Markup {
    html! {
        (line(&writer.actor))
        @if escape::is_plain_url(&writer.run) {
            " (" a href=(writer.run) { "run" } ")"
        } @else if writer.run != writer.actor {
            " (" (line(&writer.run)) ")"
        }
    }
}

pub(super) fn commit(commit: &CommitId) -> Markup {
    html! { code title=(commit.to_string()) { (commit.short()) } }
}

pub(super) fn badge(condition: StackCondition) -> Markup {
    let class = match condition {
        StackCondition::Failed | StackCondition::Unreadable | StackCondition::Stopped => "failed",
        StackCondition::Open
        | StackCondition::HeldBack
        | StackCondition::Drifted
        | StackCondition::Removed => "replace",
        StackCondition::Pending | StackCondition::NeverApplied | StackCondition::Waiting => "update",
        StackCondition::Applied => "create",
        StackCondition::Destroyed => "gone",
    };
    html! { span.badge.(class) { (condition.words()) } }
}

/// What a reader must know.
pub(super) fn notices(notices: &[String]) -> Markup {
    html! {
        @for notice in notices { p.notice { (prose(notice)) } }
    }
}

/// Who holds the lease, and the way out.
pub(super) fn lease(lease: &LeaseView, stack: &str) -> Markup {
    html! {
        p {
            "Held by " (writer(&lease.writer)) " since " (moment(lease.since)) ". "
            "Another run takes it over after " (lease.term_seconds.as_secs()) " s without a renewal."
        }
        p { "If that run is dead: " (code(&format!("konverge state unlock {} --lease {} --reason TEXT", shell_word(stack), shell_word(&lease.id)))) }
    }
}

/// The lines of a difference.
pub(super) fn diff_lines(lines: &[String]) -> Markup {
    html! {
        pre.diff tabindex="0" {
            @for line in lines {
                @match line.as_bytes().first() {
                    Some(b'+') => ins { (text(line)) },
                    Some(b'-') => del { (text(line)) },
                    _ => span { (text(line)) },
                }
            }
        }
    }
}
