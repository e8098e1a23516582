//! Small parts that several pages use.

use jiff::Timestamp;
use maud::{Markup, html};

use konverge_forge::RepositoryPages;
pub(super) use konverge_report::html::elements::{action, code, diff_lines, line, prose};
use konverge_report::time;

use crate::{LeaseView, LookView, StackCondition, Writer, operation::shell_word};
use konverge_base::model::{CommitId, health::Health};

/// Renders a time. The script adds its age.
pub(super) fn moment(at: Timestamp) -> Markup {
    html! { time datetime=(at.strftime("%Y-%m-%dT%H:%M:%SZ")) { (time(at)) } }
}

/// Renders the actor and the run of a write. The run is a link if it belongs to the repository.
pub(super) fn writer(writer: &Writer, forge: Option<&RepositoryPages>) -> Markup {
    html! {
        (linked(forge.and_then(|forge| forge.actor(&writer.run, &writer.actor)), line(&writer.actor)))
        @if writer.run != writer.actor { " (" (run(&writer.run, "run", forge)) ")" }
    }
}

/// Renders a run: a link with this text, or else the URL as plain text.
pub(super) fn run(run: &str, words: &str, forge: Option<&RepositoryPages>) -> Markup {
    match forge.and_then(|forge| forge.run(run)) {
        Some(_) => linked(Some(run.to_owned()), html! { (words) }),
        None => line(run),
    }
}

/// Renders the names of people, as links to the forge.
pub(super) fn people(names: &[String], forge: Option<&RepositoryPages>) -> Markup {
    html! {
        @for (index, name) in names.iter().enumerate() {
            @if index > 0 { ", " }
            (linked(forge.and_then(|forge| forge.person(name)), line(name)))
        }
    }
}

pub(super) fn pull_request(number: u64, forge: Option<&RepositoryPages>) -> Markup {
    linked(
        forge.map(|forge| forge.pull_request(number)),
        html! { "#" (number) },
    )
}

pub(super) fn issue(number: u64, forge: Option<&RepositoryPages>) -> Markup {
    linked(forge.map(|forge| forge.issue(number)), html! { "#" (number) })
}

pub(super) fn commit(commit: &CommitId, forge: Option<&RepositoryPages>) -> Markup {
    linked(
        forge.map(|forge| forge.commit(commit)),
        html! { code title=(commit.to_string()) { (commit.short()) } },
    )
}

/// Renders a text as a link to a page, if there is one.
fn linked(page: Option<String>, shown: Markup) -> Markup {
    html! {
        @match page {
            Some(page) => a href=(page) { (shown) },
            None => (shown),
        }
    }
}

/// Renders the number of live objects by health. `with_time` adds the time of the check.
pub(super) fn health(look: &LookView, with_time: bool) -> Markup {
    html! {
        @if let Some(counts) = look.health {
            "Live objects: "
            @if counts.is_all_ready() { (counts.words().join(", ")) } @else { strong { (counts.words().join(", ")) } }
            @if with_time { ", looked at " (moment(look.checked)) } @else { " at the last look" }
        }
    }
}

pub(super) fn health_badge(health: Health) -> Markup {
    let class = match health {
        Health::Ready => "create",
        Health::Failed => "failed",
        Health::Progressing | Health::Suspended | Health::Unknown => "replace",
    };
    html! { span.badge.(class) { (health.to_string()) } }
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

/// Renders notices.
pub(super) fn notices(notices: &[String]) -> Markup {
    html! {
        @for notice in notices { p.notice { (prose(notice)) } }
    }
}

/// Renders the holder of a lease, and how to end the lease.
pub(super) fn lease(lease: &LeaseView, stack: &str, forge: Option<&RepositoryPages>) -> Markup {
    html! {
        p {
            "Held by " (writer(&lease.writer, forge)) " since " (moment(lease.since)) ". "
            "Another run takes it over after " (lease.term_seconds.as_secs()) " s without a renewal."
        }
        p { "If that run is dead: " (code(&format!("konverge state unlock {} --lease {} --reason TEXT", shell_word(stack), shell_word(&lease.id)))) }
    }
}
