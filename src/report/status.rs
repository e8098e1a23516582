//! The output of `konverge status` for a terminal.

use super::{
    escape, labels,
    terminal::{Color, Style},
};
use crate::model::{
    health::Health,
    status::{AppliedStatus, HeadStatus, ObjectStatus, StackStatus, StatusReport},
};

/// One block per stack, then a count.
pub fn text(status: &StatusReport, style: Style) -> String {
    let mut text = String::new();
    for stack in &status.stacks {
        text.push_str(&block(stack, style));
        text.push('\n');
    }
    let well = status.stacks.iter().filter(|stack| stack.is_well()).count();
    text.push_str(&format!(
        "{}: {well} applied and ready, {} not.\n",
        labels::plural(status.stacks.len(), "stack"),
        status.stacks.len() - well
    ));
    text
}

fn block(stack: &StackStatus, style: Style) -> String {
    let mut text = format!(
        "{}  {}\n",
        style.ink(Color::Bold, stack.id.as_str()),
        escape::log(stack.stack.as_str())
    );
    let mut row = |name: &str, value: &str| text.push_str(&format!("  {name:<8} {value}\n"));
    let (words, ink) = match stack.head {
        HeadStatus::Applied => ("up to date", Color::Green),
        HeadStatus::Changed => ("changes pending", Color::Yellow),
        HeadStatus::Unfinished => ("last apply failed; the next run retries", Color::Red),
        HeadStatus::Destroyed => ("everything that was applied was destroyed", Color::Yellow),
        HeadStatus::New => ("never applied", Color::Yellow),
        HeadStatus::Removed => ("removed from the repository", Color::Red),
    };
    row("head", &style.ink(ink, words));
    if let Some(applied) = &stack.applied {
        row("state", &state(applied, stack.resources));
    }
    if !stack.pending.is_empty() {
        let ids: Vec<_> = stack.pending.iter().map(|id| escape::log(id.as_str())).collect();
        row("pending", &format!("outcome unknown: {}", ids.join(", ")));
    }
    if let Some(objects) = &stack.objects {
        row("health", &health(objects));
    }
    if let Some(error) = &stack.error {
        row("error", &style.ink(Color::Red, &escape::log(&error.message)));
    }
    for object in stack.not_ready() {
        text.push_str(&line(object, style));
    }
    text
}

fn state(applied: &AppliedStatus, resources: usize) -> String {
    let commit = applied.commit.as_ref();
    let commit = commit.map_or_else(String::new, |commit| format!(", commit {}", commit.short()));
    let digest = applied.spec_digest.as_ref();
    let digest = digest.map_or_else(String::new, |digest| format!(", Spec {}", digest.short()));
    format!(
        "serial {}, {}{commit}{digest}; {} by {} at {}",
        applied.serial,
        labels::plural(resources, "resource"),
        escape::log(&applied.reason),
        escape::log(&writer(applied)),
        labels::time(applied.written)
    )
}

/// Who applied it, and where that can be looked at. A run that has no page is named by person, machine and process: the
/// process ended long ago.
fn writer(applied: &AppliedStatus) -> String {
    let by_hand = applied.run.strip_prefix(&format!("{}@", applied.actor));
    match by_hand.and_then(|host| host.split_once(" (process ")) {
        Some((host, _)) => format!("{} on {host}", applied.actor),
        None => format!("{} ({})", applied.actor, applied.run),
    }
}

fn health(objects: &[ObjectStatus]) -> String {
    let all = [
        Health::Ready,
        Health::Progressing,
        Health::Failed,
        Health::Suspended,
        Health::Unknown,
    ];
    let counts = all.map(|health| (health, objects.iter().filter(|o| o.health == health).count()));
    let counts: Vec<_> = counts
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(health, count)| format!("{count} {health}"))
        .collect();
    match counts.is_empty() {
        true => "nothing is recorded".to_owned(),
        false => counts.join(", "),
    }
}

fn line(object: &ObjectStatus, style: Style) -> String {
    let ink = match object.health {
        Health::Ready => Color::Green,
        Health::Progressing => Color::Yellow,
        Health::Failed => Color::Red,
        Health::Suspended | Health::Unknown => Color::Cyan,
    };
    let word = style.ink(ink, &format!("{:<11}", object.health));
    let text = format!(
        "    {word} {}  {}",
        escape::log(object.id.as_str()),
        escape::log(&object.message)
    );
    format!("{}\n", text.trim_end())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::model::RepoPath;

    #[test]
    fn a_block_says_what_is_not_ready_and_carries_no_commands() {
        let object = |id: &str, health: Health, message: &str| ObjectStatus {
            id: id.parse().unwrap(),
            cluster: None,
            health,
            message: message.to_owned(),
        };
        let status = StatusReport {
            version: 1,
            stacks: vec![StackStatus {
                stack: RepoPath::normalise("appops/shop/dev").unwrap(),
                id: "shop/dev".parse().unwrap(),
                head: HeadStatus::Changed,
                applied: Some(AppliedStatus {
                    serial: 3,
                    written: "2026-11-21T10:00:00Z".parse().unwrap(),
                    reason: "apply".to_owned(),
                    actor: "dev\n::error::x".to_owned(),
                    run: "https://ci.example/7".to_owned(),
                    commit: None,
                    spec_digest: None,
                }),
                pending: Vec::new(),
                resources: 2,
                objects: Some(vec![
                    object("v1:Service:shop:web", Health::Ready, ""),
                    object("apps/v1:Deployment:shop:web", Health::Progressing, "1 of 2 pods"),
                ]),
                error: None,
            }],
        };
        let text = text(&status, Style::default());
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "shop/dev  appops/shop/dev");
        assert!(
            lines[2].starts_with("  state    serial 3, 2 resources; apply by dev"),
            "{text}"
        );
        assert_eq!(lines[3], "  health   1 ready, 1 progressing");
        assert_eq!(
            lines[4],
            "    progressing apps/v1:Deployment:shop:web  1 of 2 pods"
        );
        assert!(!text.contains("\n::"), "{text}");
        assert!(text.ends_with("1 stack: 0 applied and ready, 1 not.\n"), "{text}");
    }

    #[test]
    fn who_applied_when_is_said_as_people_say_it() {
        let applied = |run: &str| AppliedStatus {
            serial: 1,
            written: "2026-11-22T13:43:54.212055413Z".parse().unwrap(),
            reason: "apply".to_owned(),
            actor: "ann".to_owned(),
            run: run.to_owned(),
            commit: None,
            spec_digest: None,
        };
        assert_eq!(
            state(&applied("ann@laptop (process 18915)"), 1),
            "serial 1, 1 resource; apply by ann on laptop at 2026-11-22 13:43:54 UTC"
        );
        let page = "https://ci.example/7";
        assert!(state(&applied(page), 1).contains(&format!("apply by ann ({page}) at")));
    }
}
