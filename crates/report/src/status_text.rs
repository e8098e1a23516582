//! The output of `konverge status` for a terminal.

use super::{
    escape, labels,
    table::{Cell, folded, table},
    terminal::{Color, Style},
};
use konverge_base::model::{
    ResourceId,
    condition::StackCondition,
    health::Health,
    stack_status::{AppliedStatus, HeadStatus, ObjectStatus, StackStatus, StatusReport},
};

/// The stacks that have a row of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusRows {
    /// Every stack.
    All,
    /// Only stacks that a person should look at. The others are applied and ready, so they are only counted.
    NotReady,
}

/// Renders a table with the worst stack first, the details of each of these stacks, and a count.
pub fn text(status: &StatusReport, rows: StatusRows, style: Style) -> String {
    let well = status
        .stacks
        .iter()
        .filter(|stack| stack.is_applied_and_ready())
        .count();
    let mut shown: Vec<_> = status
        .stacks
        .iter()
        .filter(|stack| rows == StatusRows::All || !stack.is_applied_and_ready())
        .collect();
    shown.sort_by_key(|stack| severity(stack));
    let mut text = String::new();
    if !shown.is_empty() {
        let rows = table_rows(&shown);
        text.push_str(&table(
            ["STACK", "HEAD", "HEALTH", "SERIAL", "APPLIED (UTC)"],
            &rows,
            style,
        ));
        text.push('\n');
        for stack in &shown {
            text.push_str(&details(stack, style));
        }
    }
    // Without a cluster the health of the objects is unknown.
    let unseen = status
        .stacks
        .iter()
        .filter(|stack| stack.is_applied_and_ready() && stack.objects.is_none())
        .count();
    let mut counts = Vec::new();
    if unseen < well || well == 0 {
        counts.push(format!("{} applied and ready", well - unseen));
    }
    if unseen > 0 {
        counts.push(format!("{unseen} applied without a check of the cluster"));
    }
    text.push_str(&format!(
        "{}: {}, {} not.\n",
        style.paint(Color::Bold, &labels::plural(status.stacks.len(), "stack")),
        counts.join(", "),
        status.stacks.len() - well
    ));
    text
}

/// Returns the sort key of a stack: stacks that need a person come first.
fn severity(stack: &StackStatus) -> u8 {
    let has = |health: Health| stack.not_ready().any(|object| object.health == health);
    match stack.head {
        _ if stack.error.is_some() => 0,
        _ if stack.unfinished().is_some() => 1,
        HeadStatus::Unfinished => 1,
        _ if !stack.pending.is_empty() => 1,
        _ if has(Health::Failed) => 2,
        HeadStatus::Removed => 3,
        _ if has(Health::Progressing) || has(Health::Unknown) => 4,
        HeadStatus::Changed => 5,
        HeadStatus::New => 6,
        HeadStatus::Destroyed => 7,
        HeadStatus::Waiting => 8,
        HeadStatus::Applied | HeadStatus::Kept if has(Health::Suspended) => 8,
        HeadStatus::Applied | HeadStatus::Kept => 9,
    }
}

/// Returns a row for each stack; many stacks that were never applied share one row.
fn table_rows(shown: &[&StackStatus]) -> Vec<[Cell; 5]> {
    let is_new = |stack: &&&StackStatus| {
        stack.head == HeadStatus::New && stack.error.is_none() && stack.unfinished().is_none()
    };
    let new: Vec<_> = shown.iter().filter(is_new).map(|stack| &stack.id).collect();
    let Some(cell) = folded(&new) else {
        return shown.iter().map(|stack| row(stack)).collect();
    };
    let others = shown.iter().filter(|stack| !is_new(stack));
    let mut rows: Vec<_> = others.map(|stack| row(stack)).collect();
    let words = Cell::colored(Color::Yellow, "never applied");
    rows.push([cell, words, Cell::plain(""), Cell::plain(""), Cell::plain("")]);
    rows
}

fn row(stack: &StackStatus) -> [Cell; 5] {
    let unfinished = stack.unfinished();
    let (words, color) = match (stack.head, unfinished) {
        _ if stack.error.is_some() => ("unknown", Color::Red),
        (_, Some(ended @ (StackCondition::Stopped | StackCondition::HeldBack))) => {
            (ended.words(), Color::Yellow)
        }
        (_, Some(ended)) => (ended.words(), Color::Red),
        (HeadStatus::Applied, _) => ("up to date", Color::Green),
        (HeadStatus::Changed, _) => ("changes pending", Color::Yellow),
        (HeadStatus::Waiting, _) => ("waiting", Color::Cyan),
        (HeadStatus::Unfinished, _) => ("running or interrupted", Color::Red),
        (HeadStatus::Destroyed, _) => ("destroyed", Color::Yellow),
        (HeadStatus::New, _) => ("never applied", Color::Yellow),
        (HeadStatus::Removed, _) => ("removed from the repository", Color::Red),
        (HeadStatus::Kept, _) => ("kept, not a stack here", Color::Dim),
    };
    let objects = stack.objects.as_deref().unwrap_or_default();
    let has = |wanted: fn(Health) -> bool| objects.iter().any(|object| wanted(object.health));
    let health_ink = match (
        has(|health| health == Health::Failed),
        has(|health| health != Health::Ready),
    ) {
        (true, _) => Color::Red,
        (false, true) => Color::Yellow,
        (false, false) => Color::Green,
    };
    let applied = stack.applied.as_ref();
    [
        Cell::colored(Color::Bold, escape::log(stack.id.as_str())),
        Cell::colored(color, words),
        Cell::colored(
            health_ink,
            stack.objects.as_deref().map(health).unwrap_or_default(),
        ),
        Cell::plain(
            applied
                .map(|applied| applied.serial.to_string())
                .unwrap_or_default(),
        ),
        Cell::plain(
            applied
                .map(|applied| applied.written.strftime("%Y-%m-%d %H:%M").to_string())
                .unwrap_or_default(),
        ),
    ]
}

/// Returns the details that do not fit in a row; empty if there are none.
fn details(stack: &StackStatus, style: Style) -> String {
    let mut lines = String::new();
    if let Some(applied) = &stack.applied {
        lines.push_str(&format!("  {}\n", state(applied, stack.resources)));
    }
    if !stack.pending.is_empty() {
        let ids: Vec<_> = stack.pending.iter().map(title).collect();
        lines.push_str(&format!("  outcome unknown: {}\n", ids.join(", ")));
    }
    lines.push_str(match (stack.unfinished(), stack.head) {
        (Some(StackCondition::Failed), _) => "  last apply failed; the next run retries\n",
        (Some(StackCondition::Open), _) | (None, HeadStatus::Unfinished) => {
            "  a run is in progress, or was killed: `konverge state doctor` shows which, and the next run continues\n"
        }
        (Some(StackCondition::Stopped), _) => {
            "  last apply was stopped by a review, a policy, a freeze or a lease; the next run tries again\n"
        }
        _ => "",
    });
    if stack.head == HeadStatus::Waiting {
        lines.push_str("  last apply waits; the next run continues with the stack\n");
    }
    if let Some(error) = &stack.error {
        for line in escape::log_each(&error.message) {
            lines.push_str(&format!("  {}\n", style.paint(Color::Red, &line)));
        }
        for hint in &error.hints {
            lines.push_str(&format!("  hint: {}\n", escape::log(hint)));
        }
    }
    for object in stack.not_ready() {
        lines.push_str(&line(object, style));
    }
    if lines.is_empty() {
        return lines;
    }
    format!(
        "{} ({})\n{lines}\n",
        style.paint(Color::Bold, &escape::log(stack.id.as_str())),
        escape::log(stack.stack.as_str())
    )
}

fn title(id: &ResourceId) -> String {
    escape::log(&labels::Title::from_id(id).full())
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

/// Returns who applied the stack, and where that run can be looked up. A run without a web page is described by user
/// and machine, without its process, which ended long ago.
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
    if counts.is_empty() {
        "nothing is recorded".to_owned()
    } else {
        counts.join(", ")
    }
}

fn line(object: &ObjectStatus, style: Style) -> String {
    let color = match object.health {
        Health::Ready => Color::Green,
        Health::Progressing => Color::Yellow,
        Health::Failed => Color::Red,
        Health::Suspended | Health::Unknown => Color::Cyan,
    };
    let word = style.paint(color, &format!("{:<11}", object.health));
    let text = format!("  {word} {}  {}", title(&object.id), escape::log(&object.message));
    format!("{}\n", text.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::RepoPath;

    fn stack(id: &str, head: HeadStatus, objects: Vec<ObjectStatus>) -> StackStatus {
        StackStatus {
            stack: RepoPath::normalize(&format!("appops/{id}")).unwrap(),
            id: id.parse().unwrap(),
            head,
            conditions: match head {
                HeadStatus::Unfinished => vec![StackCondition::Failed],
                _ => Vec::new(),
            },
            applied: Some(AppliedStatus {
                serial: 3,
                written: "2026-11-21T10:00:00.123456789Z".parse().unwrap(),
                reason: "apply".to_owned(),
                actor: "dev\n::error::x".to_owned(),
                run: "https://ci.example/7".to_owned(),
                commit: None,
                spec_digest: None,
            }),
            pending: Vec::new(),
            resources: 2,
            objects: Some(objects),
            error: None,
        }
    }

    fn object(id: &str, health: Health, message: &str) -> ObjectStatus {
        ObjectStatus {
            id: id.parse().unwrap(),
            cluster: None,
            health,
            message: message.to_owned(),
            suspended_by_spec: false,
        }
    }

    #[test]
    fn the_worst_stack_is_first_and_those_that_are_well_are_counted() {
        let ready = || object("v1:Service:shop:web", Health::Ready, "");
        let web = object("apps/v1:Deployment:shop:web", Health::Progressing, "1 of 2 pods");
        let status = StatusReport {
            version: 1,
            freeze: None,
            stacks: vec![
                stack("shop/dev", HeadStatus::Applied, vec![ready()]),
                stack("shop/new", HeadStatus::New, Vec::new()),
                stack("shop/prod", HeadStatus::Changed, vec![ready(), web]),
            ],
        };
        let said = text(&status, StatusRows::NotReady, Style::default());
        let lines: Vec<_> = said.lines().collect();
        assert_eq!(
            lines[..7],
            [
                "STACK      HEAD             HEALTH                  SERIAL  APPLIED (UTC)",
                "shop/prod  changes pending  1 ready, 1 progressing  3       2026-11-21 10:00",
                "shop/new   never applied    nothing is recorded     3       2026-11-21 10:00",
                "",
                "shop/prod (appops/shop/prod)",
                "  serial 3, 2 resources; apply by dev\\u{a}::error::x (https://ci.example/7) at 2026-11-21 10:00:00 UTC",
                "  progressing apps/v1 Deployment shop/web  1 of 2 pods",
            ]
        );
        assert!(!said.contains("\n::") && !said.contains("shop/dev"), "{said}");
        assert!(
            said.ends_with("3 stacks: 1 applied and ready, 2 not.\n"),
            "{said}"
        );
        let named = text(&status, StatusRows::All, Style::default());
        assert!(
            named.lines().nth(3).unwrap().starts_with("shop/dev   up to date"),
            "{named}"
        );
        let widths = |text: &str| text.lines().map(|line| line.chars().count()).max();
        assert!(widths(&lines[..4].join("\n")) <= Some(80), "{said}");
    }

    #[test]
    fn a_stack_is_called_ready_only_if_a_cluster_was_asked() {
        let unseen = StackStatus {
            objects: None,
            ..stack("shop/dev", HeadStatus::Applied, Vec::new())
        };
        let seen = stack("shop/prod", HeadStatus::Applied, Vec::new());
        let said = |stacks: &[&StackStatus]| {
            let status = StatusReport {
                version: 1,
                freeze: None,
                stacks: stacks.iter().copied().cloned().collect(),
            };
            text(&status, StatusRows::NotReady, Style::default())
        };
        assert_eq!(
            said(&[&unseen]),
            "1 stack: 1 applied without a check of the cluster, 0 not.\n"
        );
        assert_eq!(
            said(&[&unseen, &seen]),
            "2 stacks: 1 applied and ready, 1 applied without a check of the cluster, 0 not.\n"
        );
    }

    #[test]
    fn many_stacks_that_were_never_applied_are_one_row() {
        let new = |n: usize| StackStatus {
            applied: None,
            objects: None,
            ..stack(&format!("p{n:02}/dev"), HeadStatus::New, Vec::new())
        };
        let mut status = StatusReport {
            version: 1,
            freeze: None,
            stacks: (0..40).map(new).collect(),
        };
        status
            .stacks
            .push(stack("shop/dev", HeadStatus::Unfinished, Vec::new()));
        let said = text(&status, StatusRows::NotReady, Style::default());
        let lines: Vec<_> = said.lines().collect();
        assert!(
            lines[1].starts_with("shop/dev ") && lines[1].contains("last apply failed"),
            "{said}"
        );
        assert_eq!(lines[2], "40 stacks, such as p00/dev  never applied");
        // A run that was killed is not one that failed.
        status.stacks[40].conditions = vec![StackCondition::Open];
        status.stacks[40].pending = vec!["v1:ConfigMap:shop:web".parse().unwrap()];
        let killed = text(&status, StatusRows::NotReady, Style::default());
        assert!(
            killed.contains("running or interrupted") && !killed.contains("last apply failed"),
            "{killed}"
        );
        assert!(!said.contains("p01/dev"), "{said}");
        assert!(
            said.ends_with("41 stacks: 0 applied and ready, 41 not.\n"),
            "{said}"
        );
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
