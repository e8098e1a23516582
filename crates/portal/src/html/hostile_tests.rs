//! Hostile text in every field of every page.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::{
    AppliedState, AuditDocument, AuditEntry, BegunRollout, ChangedResource, DriftView, FreezeView,
    HistoryDocument, HistoryRow, LeaseView, LookView, NextStep, OperationAnswer, OperationInput, Overview,
    OverviewRow, Permission, PermissionSubject, PermissionsDocument, PortalOperation, PortalPerson,
    RequestOutcome, RolloutProgress, RolloutView, RolloutsDocument, SearchIndex, SearchNames, SeenDifference,
    SeenStack, SerialChange, StackCondition, StackDetails, StackOrder, StateDifference, StoppedView,
    WaveStanding, WaveView, Writer, audit_csv,
};
use konverge_base::model::{
    Digest, RepoPath, StackId,
    apply_record::ApplyRecord,
    apply_result::StackResult,
    authorization::{Authorization, PolicyOverride, RecordedFindings, ReviewedPull},
    health::Health,
    plan::Action,
    policy_finding::{Enforcement, PolicyFinding},
    review::ReviewUnit,
    rollout::RolloutPhase,
    spec::{RuntimeKind, Sharing},
    stack_look::{HealthCounts, UnreadyObject},
    state::{Recorded, RuntimeRecord, StackState},
};
use konverge_forge::{ForgeKind, RepositoryPages};

/// Markup, quotes, a direction override, a control sequence, a zero-width character and a line break.
const HOSTILE: &str = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"onmouseover='alert(3)' \u{202e}\u{1b}[31m\u{200b}&amp;\n`x";

fn text() -> String {
    HOSTILE.to_owned()
}

/// An identity may hold markup, but no white space and no control character.
fn id() -> StackId {
    "<img/src=x\"onerror='alert(1)'>".parse().unwrap()
}

fn writer() -> Writer {
    Writer {
        run: format!("javascript:{HOSTILE}"),
        actor: text(),
    }
}

fn forge() -> Option<RepositoryPages> {
    RepositoryPages::parse(ForgeKind::Github, "https://github.com/acme/infra")
}

fn row() -> OverviewRow {
    let at = Timestamp::UNIX_EPOCH;
    OverviewRow {
        stack: RepoPath::normalize("apps/<b>\"x'").unwrap().into(),
        id: id(),
        conditions: StackCondition::ALL.to_vec(),
        applied: Some(AppliedState {
            serial: 3,
            written: at,
            reason: text(),
            writer: writer(),
            result: Some(StackResult::Failed),
            commit: Some("a".repeat(40).parse().unwrap()),
            attempted: Some("b".repeat(40).parse().unwrap()),
        }),
        resources: 1,
        stopped: Some(StoppedView {
            at,
            result: StackResult::Stopped,
            writer: writer(),
        }),
        drift: Some(DriftView {
            since: at,
            checked: at,
            digest: Digest::of_bytes(b"x"),
        }),
        look: Some(LookView {
            checked: at,
            health: Some(HealthCounts {
                failed: 1,
                ..HealthCounts::default()
            }),
        }),
        error: Some(text()),
    }
}

/// What a run recorded, as who may write to the store could.
fn difference_seen() -> SeenDifference {
    let unit = |path: &str| ReviewUnit {
        stack: id(),
        resource: "v1:<b>:\"x:y".parse().unwrap(),
        action: Action::Update,
        path: path.into(),
        to: Some(json!({HOSTILE: HOSTILE})),
        from: Some(json!(HOSTILE)),
    };
    SeenDifference {
        run: format!("https://evil.example/{HOSTILE}"),
        issue: Some(1),
        pull_request: Some(2),
        head: Some("a".repeat(40).parse().unwrap()),
        units: vec![unit(&format!("/data/{HOSTILE}")), unit("/name=<b>\"x'/y")],
        more: 1,
    }
}

fn rollouts_document() -> RolloutsDocument {
    let begun = BegunRollout {
        phase: RolloutPhase::Gate,
        paused: true,
        commit: "a".repeat(40).parse().unwrap(),
        wave: 1,
        waves: vec![WaveView {
            wave: 1,
            is: WaveStanding::Now,
            stacks: vec![id()],
            bake: Some(text()),
            gates: vec![text()],
        }],
        since: Timestamp::UNIX_EPOCH,
        until: Some(Timestamp::UNIX_EPOCH),
        why: text(),
        overdue: true,
        gates: BTreeMap::from([(text(), text())]),
        approve: BTreeMap::from([(text(), None)]),
        approvers: BTreeMap::from([(text(), vec![text()])]),
        unplanned: [id()].into(),
        held: [id()].into(),
        number: 1,
        writer: writer(),
        folders: BTreeMap::new(),
    };
    RolloutsDocument {
        version: 1,
        rollouts: vec![RolloutView {
            rollout: text(),
            configured: false,
            progress: RolloutProgress::Begun(Box::new(begun)),
        }],
        notices: vec![text()],
    }
}

fn permissions_document() -> PermissionsDocument {
    PermissionsDocument {
        version: 1,
        commit: None,
        permissions: vec![Permission {
            subject: PermissionSubject::Approvals,
            who: vec![text()],
            may: text(),
            stacks: vec![text()],
            key: text(),
        }],
    }
}

fn state() -> StackState {
    let mut state = StackState::empty(id(), RepoPath::root());
    let attributes = json!({HOSTILE: {"deep": [HOSTILE, {"$secret": HOSTILE}]}});
    state.put(Recorded {
        id: "v1:Config<Map>:\"x'onclick=:<b>".parse().unwrap(),
        runtime: RuntimeKind::Kubernetes,
        cluster: "main".parse().ok(),
        attributes: Arc::new(attributes.as_object().unwrap().clone()),
        depends_on: vec!["v1:Other<i>:\"y:<s>".parse().unwrap()],
        extensions: json!({"<script>": HOSTILE}).as_object().unwrap().clone(),
        sharing: Sharing::default(),
        object_hash: None,
        private: RuntimeRecord::default(),
    });
    state
}

fn record() -> ApplyRecord {
    let finding = PolicyFinding {
        verdict: Enforcement::Warn,
        rule: text(),
        stack: None,
        message: text(),
        hint: Some(text()),
        place: None,
    };
    ApplyRecord {
        digest: Digest::of_bytes(b"plan"),
        commit: None,
        merged: None,
        result: StackResult::Applied,
        grounds: Authorization {
            pull_requests: vec![ReviewedPull {
                number: 7,
                head: "a".repeat(40).parse().unwrap(),
                reviewers: Some(vec![text()]),
            }],
            agreed_by: vec![text()],
            why: Some(text()),
            overrides: vec![PolicyOverride {
                finding: Digest::of_bytes(b"x"),
                rule: text(),
                message: text(),
                by: vec![text()],
                why: Some(text()),
            }],
            findings: RecordedFindings {
                shown: vec![finding],
                more: 1,
            },
            reconciled: true,
        },
    }
}

fn stack_view() -> StackDetails {
    let read = HistoryDocument::Read {
        reason: text(),
        writer: writer(),
        time: Timestamp::UNIX_EPOCH,
        commit: None,
        resources: 1,
        note: Some(text()),
        receipt: Some(Box::new(record())),
    };
    StackDetails {
        version: 1,
        row: row(),
        notices: vec![text()],
        state: Some(state()),
        pending: vec!["v1:<b>:\"x:y".parse().unwrap()],
        seen: SeenStack {
            drift_difference: Some(difference_seen()),
            pending_differences: vec![difference_seen()],
            unready: vec![UnreadyObject {
                id: "v1:<b>:\"x:y".parse().unwrap(),
                cluster: "main".parse().ok(),
                health: Health::Failed,
                message: text(),
            }],
        },
        forge: forge(),
        history: vec![
            HistoryRow {
                serial: 3,
                document: read,
            },
            HistoryRow {
                serial: 2,
                document: HistoryDocument::Unreadable { unreadable: text() },
            },
        ],
        lease: Some(LeaseView {
            id: text(),
            writer: writer(),
            since: Timestamp::UNIX_EPOCH,
            term_seconds: Duration::from_secs(60),
        }),
    }
}

/// Every page, by a name.
fn pages() -> Vec<(&'static str, String)> {
    let overview = Overview {
        version: 1,
        repository: text(),
        head: Some("c".repeat(40).parse().unwrap()),
        forge: forge(),
        freeze: Some(FreezeView {
            reason: text(),
            since: Timestamp::UNIX_EPOCH,
            writer: writer(),
        }),
        notices: vec![text()],
        stacks: vec![row()],
    };
    let mut index = SearchIndex::default();
    let names = SearchNames {
        names: BTreeMap::from([
            (text(), vec![text()]),
            ("__proto__".to_owned(), vec!["constructor".to_owned()]),
        ]),
        images: [text()].into(),
        more: 2,
    };
    index.add(&id(), names);
    let result = index.search("alert");
    let view = stack_view();
    let difference = StateDifference {
        version: 1,
        stack: id(),
        from: 2,
        to: 3,
        resources: vec![ChangedResource {
            id: "v1:<b>:\"x:y".parse().unwrap(),
            change: SerialChange::Changed,
            lines: vec![format!("+{HOSTILE}"), format!("-{HOSTILE}"), text()],
        }],
    };
    let mut pages = Vec::new();
    for mode in [PageMode::Static, PageMode::Served, PageMode::Personal] {
        pages.push((
            "overview",
            super::overview(&overview, &overview, mode, Some(StackCondition::Failed), HOSTILE),
        ));
        pages.push(("search", search(&index, mode, HOSTILE, Some(&result))));
        let (all, forge) = (rollouts_document(), forge());
        pages.push(("stacks", stacks(&overview, StackOrder::Drift, mode)));
        pages.push(("rollouts", rollouts(&all, forge.as_ref(), mode)));
        let permissions = permissions(Some(&permissions_document()), forge.as_ref(), mode);
        pages.push(("permissions", permissions));
        let differences = &[(2, 3)];
        pages.push((
            "stack",
            stack(&StackPage {
                view: &view,
                differences,
                older: 39,
                mode,
            }),
        ));
    }
    pages.push(("kind", kind(&index, HOSTILE).unwrap()));
    pages.push(("difference", super::difference(&difference)));
    pages.extend(pages_of_a_person(&overview, &view));
    pages.push(("failure", failure(HOSTILE, HOSTILE, &[text()], 1)));
    pages
}

/// The pages of `konverge serve` with a login.
fn pages_of_a_person(overview: &Overview, view: &StackDetails) -> Vec<(&'static str, String)> {
    let person = PortalPerson {
        issuer: text(),
        subject: text(),
        name: text(),
    };
    let entry = AuditEntry {
        id: "20261126T100000000Z-0123456789ab".to_owned(),
        time: Timestamp::UNIX_EPOCH,
        operation: PortalOperation::Unlock,
        stack: Some(id()),
        folder: None,
        input: OperationInput {
            reason: Some(text()),
            digest: Some(text()),
            serial: Some(3),
            lease: Some(text()),
        },
        person: person.clone(),
        address: text(),
        forwarded_for: Some(text()),
        outcome: RequestOutcome::Failed,
        error: Some(text()),
    };
    let document = AuditDocument {
        version: 1,
        entries: vec![entry],
        notices: vec![text()],
    };
    let answer = OperationAnswer {
        version: 1,
        operation: PortalOperation::Rollback,
        stack: Some(id()),
        audit: "entry".to_owned(),
        outcome: RequestOutcome::Asked,
        next: Some(NextStep {
            forge: ForgeKind::Github,
            address: Some(format!("javascript:{HOSTILE}")),
            command: Some(text()),
            says: text(),
        }),
    };
    vec![
        ("account", account(&person, &[("operator", HOSTILE)], "token")),
        ("audit", audit(&document)),
        ("operations", operations(view, Some("token"))),
        ("freeze", freeze(overview, Some("token"))),
        ("answered", answered(&answer, 3)),
    ]
}

#[test]
fn text_of_others_is_data_in_every_field_of_every_page() {
    for (name, page) in pages() {
        assert!(
            page.matches("alert(1)").count() > 0 || name == "failure",
            "{name}: the text is shown"
        );
        for forbidden in [
            "<script>alert",
            "<img",
            "<b>",
            "<i>",
            "\"onmouseover",
            "\"onerror",
            "\"x'",
            "javascript:alert",
        ] {
            assert!(!page.contains(forbidden), "{name}: {forbidden}: {page}");
        }
        assert!(!page.contains("href=\"javascript"), "{name}");
        for hidden in ['\u{202e}', '\u{1b}', '\u{200b}'] {
            assert!(!page.contains(hidden), "{name}: {hidden:?}");
        }
        // The only scripts and styles are our own files.
        let scripts = page
            .split("<script")
            .skip(1)
            .map(|rest| rest.split('>').next().unwrap());
        for script in scripts {
            assert!(
                script.contains("src=\"") && script.contains("portal.js") || script.contains("search.js"),
                "{name}: {script}"
            );
        }
        assert!(!page.contains("style=") && !page.contains("<style"), "{name}");
        assert!(
            page.contains("default-src &#39;none&#39;") || page.contains("default-src 'none'"),
            "{name}"
        );
    }
}

/// Who may write to the store names no host that a reader is led to.
#[test]
fn every_link_leads_to_a_page_of_the_site_or_to_the_forge() {
    for (name, page) in pages() {
        // The next step of a request is the page of `portal.workflow`, which the default branch names.
        let links = page.split("href=\"").skip(1);
        let links: Vec<_> = links.map(|rest| rest.split('"').next().unwrap()).collect();
        for link in links.iter().filter(|link| link.contains(':')) {
            assert!(link.starts_with("https://github.com/"), "{name}: {link}");
        }
    }
    let page = &pages().into_iter().find(|(name, _)| *name == "stack").unwrap().1;
    for link in [
        "https://github.com/acme/infra/issues/1",
        "https://github.com/acme/infra/pull/2",
        "https://github.com/acme/infra/commit/aaaa",
    ] {
        assert!(page.contains(&format!("href=\"{link}")), "{link}: {page}");
    }
    // The text of the run of another host is shown, and its people are no people of the forge.
    assert!(
        page.contains("https://evil.example/") && !page.contains("https://github.com/ada"),
        "{page}"
    );
}

#[test]
fn no_cell_of_the_audit_is_computed() {
    let person = PortalPerson {
        issuer: "=1+1".to_owned(),
        subject: text(),
        name: "@SUM(A1)".to_owned(),
    };
    let entry = AuditEntry {
        id: "entry".to_owned(),
        time: Timestamp::UNIX_EPOCH,
        operation: PortalOperation::Unlock,
        stack: Some(id()),
        folder: None,
        input: OperationInput {
            reason: Some("a\r\n=HYPERLINK(\"https://evil.example\"),\"b".to_owned()),
            ..OperationInput::default()
        },
        person,
        address: "-1".to_owned(),
        forwarded_for: Some("+1".to_owned()),
        outcome: RequestOutcome::Done,
        error: None,
    };
    let text = audit_csv(&AuditDocument {
        version: 1,
        entries: vec![entry],
        notices: Vec::new(),
    });
    let rows: Vec<_> = text.split("\r\n").collect();
    let [head, row, ""] = rows.as_slice() else {
        panic!("{rows:?}")
    };
    assert!(head.starts_with("\"id\",\"time\","), "{head}");
    for cell in ["\"'=1+1\"", "\"'@SUM(A1)\"", "\"'-1\"", "\"'+1\""] {
        assert!(row.contains(cell), "{cell}: {row}");
    }
    assert!(
        !row.contains(",\"=") && row.contains("\"\"https://evil.example\"\""),
        "{row}"
    );
}

/// What a reader copies into a shell names the stack, and runs nothing else.
#[test]
fn a_command_on_a_page_is_one_command() {
    let hostile = "$(touch${IFS}x);reboot/'`id`";
    let mut view = stack_view();
    view.row.id = hostile.parse().unwrap();
    let lease = view.lease.as_mut().unwrap();
    lease.id = "1;reboot".to_owned();
    let page = StackPage {
        view: &view,
        differences: &[],
        older: 39,
        mode: PageMode::Static,
    };
    let page = stack(&page);
    let quoted = r"&#39;$(touch${IFS}x);reboot/&#39;&quot;&#39;&quot;&#39;`id`&#39;";
    let plain = quoted.replace("&#39;", "'").replace("&quot;", "\"");
    let quoted = [quoted.to_owned(), plain];
    for (command, rest) in [
        ("konverge state history ", ""),
        ("konverge state diff ", " FROM TO"),
        ("konverge state unlock ", " --lease "),
    ] {
        let is_one = quoted
            .iter()
            .any(|stack| page.contains(&format!("{command}{stack}{rest}")));
        assert!(is_one, "{command}: {page}");
    }
    assert!(!page.contains("--lease 1;reboot"), "{page}");
}

#[test]
fn the_names_for_the_search_are_one_text_of_json() {
    let mut index = SearchIndex::default();
    let names = SearchNames {
        names: BTreeMap::from([("__proto__".to_owned(), vec![text(), "\u{2028}".to_owned()])]),
        ..SearchNames::default()
    };
    index.add(&id(), names);
    let script = search_data(&index);
    let literal = script
        .strip_prefix("globalThis.konvergeNames = JSON.parse(")
        .unwrap();
    let literal = literal.strip_suffix(");\n").unwrap();
    let inner: String = serde_json::from_str(literal).unwrap();
    let data: serde_json::Value = serde_json::from_str(&inner).unwrap();
    assert_eq!(data["kinds"]["__proto__"][HOSTILE], json!([0]));
    assert!(!script.contains('\u{2028}') && !script.contains('\u{202e}'));
}

#[test]
fn a_page_is_complete_without_script_and_names_its_parts() {
    for (name, page) in pages() {
        assert!(page.starts_with("<!DOCTYPE html><html lang=\"en\">"), "{name}");
        assert_eq!(page.matches("<h1>").count(), 1, "{name}");
        assert_eq!(page.matches("<main").count(), 1, "{name}");
        assert!(page.contains("href=\"#main\""), "{name}");
    }
}
