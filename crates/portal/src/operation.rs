//! Operations that a person can request. Most are CI runs, which the person starts at the forge under their own
//! name; the portal itself performs only a few writes.

use std::fmt::Write as _;

use jiff::Timestamp;
use konverge_base::model::{RepoPath, StackId};
use konverge_forge::{ForgeKind, RepositoryPages, RunPage, WorkflowPage};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};

use crate::OverviewRow;

/// An operation that a person can request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PortalOperation {
    /// Check for drift.
    DriftCheck,
    /// Restore the known drift.
    Restore,
    /// Approve a plan by its digest.
    Approve,
    /// Apply an earlier serial again.
    Rollback,
    /// Repeat the last apply.
    Retry,
    /// End a lease.
    Unlock,
    /// Stop all applies.
    Freeze,
    /// Let applies run again after a freeze.
    Unfreeze,
}

impl PortalOperation {
    /// The operations on one stack.
    pub const OF_A_STACK: [Self; 6] = [
        Self::DriftCheck,
        Self::Restore,
        Self::Approve,
        Self::Rollback,
        Self::Retry,
        Self::Unlock,
    ];

    /// Returns the key of the operation in URLs and documents.
    pub fn key(self) -> &'static str {
        match self {
            Self::DriftCheck => "drift-check",
            Self::Restore => "restore",
            Self::Approve => "approve",
            Self::Rollback => "rollback",
            Self::Retry => "retry",
            Self::Unlock => "unlock",
            Self::Freeze => "freeze",
            Self::Unfreeze => "unfreeze",
        }
    }

    /// Returns the operation on a stack with this key.
    pub fn of_stack(key: &str) -> Option<Self> {
        Self::OF_A_STACK
            .into_iter()
            .find(|operation| operation.key() == key)
    }

    /// Returns true for the writes that the portal does itself.
    pub fn is_own_write(self) -> bool {
        matches!(self, Self::Unlock | Self::Freeze | Self::Unfreeze)
    }

    /// Returns the text of the button.
    pub fn words(self) -> &'static str {
        match self {
            Self::DriftCheck => "Check for drift",
            Self::Restore => "Restore the drift",
            Self::Approve => "Approve a plan",
            Self::Rollback => "Go back to a serial",
            Self::Retry => "Run the last apply again",
            Self::Unlock => "End the lease",
            Self::Freeze => "Freeze all applies",
            Self::Unfreeze => "Let applies run again",
        }
    }
}

/// The input of a request.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OperationInput {
    /// The reason; required for `unlock`, `freeze` and `unfreeze`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The digest of the plan to approve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The serial to apply again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<u64>,
    /// The id of the lease to end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
}

/// A person or a script, identified by a login provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortalPerson {
    /// The login provider (OpenID issuer).
    pub issuer: String,
    /// The id of the person at the issuer, which the issuer never gives to anybody else.
    pub subject: String,
    /// The display name.
    pub name: String,
}

/// The page and the command with which a person continues at the forge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NextStep {
    /// The forge of the page.
    #[serde(skip)]
    pub forge: ForgeKind,
    /// The page at the forge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The command that does the same, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// An instruction in one sentence.
    pub says: String,
}

/// The response to a request. The JSON has `"version":1`.
#[derive(Debug, Clone, Serialize)]
pub struct OperationAnswer {
    /// Version of this format.
    pub version: u32,
    /// The requested operation.
    pub operation: PortalOperation,
    /// The stack; `None` for a freeze.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stack: Option<StackId>,
    /// The id of the request's entry in the audit log.
    pub audit: String,
    /// `asked`: the person must take the next step; `done`: the portal did it.
    pub outcome: RequestOutcome,
    /// The next step of the person, for an operation in CI.
    #[serde(flatten)]
    pub next: Option<NextStep>,
}

/// The outcome of a person's request to the portal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RequestOutcome {
    /// The person got instructions; nothing has been done yet.
    Asked,
    /// The portal performed the operation.
    Done,
    /// The operation failed.
    Failed,
    /// The portal began, and no outcome is recorded.
    Unknown,
}

impl RequestOutcome {
    /// Returns the key in documents.
    pub fn key(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }
}

/// An entry of the audit log.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry {
    /// The id of the entry.
    pub id: String,
    /// The time, by the clock of the process that wrote it.
    pub time: Timestamp,
    /// The requested operation.
    pub operation: PortalOperation,
    /// The stack; `None` for a freeze.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stack: Option<StackId>,
    /// The folder of the stack at that time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<RepoPath>,
    /// The input of the request.
    pub input: OperationInput,
    /// The person, as the login provider reported.
    pub person: PortalPerson,
    /// The address from which the request came.
    pub address: String,
    /// The client's address as proxies report it (`X-Forwarded-For`). Anybody can write it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forwarded_for: Option<String>,
    /// The outcome of the request.
    pub outcome: RequestOutcome,
    /// The error, if the operation failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The number of entries on the page of the audit log.
pub const AUDIT_ENTRIES: usize = 500;
/// The number of entries in the CSV of the audit log.
pub const AUDIT_ROWS: usize = 5000;

/// The newest entries of the audit log. The JSON has `"version":1`.
#[derive(Debug, Clone, Serialize)]
pub struct AuditDocument {
    /// Version of this format.
    pub version: u32,
    /// The entries, the newest first.
    pub entries: Vec<AuditEntry>,
    /// Entries that cannot be read, each with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
}

/// The reason why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct OperationRefusal {
    /// The missing precondition.
    pub message: String,
    /// The instruction for the person.
    pub hint: &'static str,
}

/// Returns the page and the command with which a person performs an operation under their own name. The portal
/// cannot do it itself, because it has no credentials for the forge.
///
/// # Errors
/// A missing precondition: a digest, a serial, known drift, a run, or `portal.workflow`.
pub fn next_step(
    operation: PortalOperation,
    row: &OverviewRow,
    input: &OperationInput,
    workflow: Option<&str>,
) -> Result<NextStep, OperationRefusal> {
    let page = workflow.and_then(WorkflowPage::parse);
    let page = page.as_ref();
    match operation {
        PortalOperation::DriftCheck => Ok(by_hand(
            page,
            None,
            "The run checks for drift, and begins with the stacks that were checked least recently.",
        )),
        PortalOperation::Restore => match &row.drift {
            Some(drift) => Ok(by_hand(
                page,
                Some(&drift.digest.to_string()),
                "The run restores exactly this difference, if the policies allow it.",
            )),
            None => Err(refusal(
                "no drift of this stack is known",
                "ask for a drift check first",
            )),
        },
        PortalOperation::Approve => {
            let digest = input.digest.as_deref().unwrap_or_default().trim();
            if is_digest(digest) {
                let follows = format!(
                    "{}'s record of who started the run is the approval.",
                    forge_of(page)
                );
                Ok(by_hand(page, Some(digest), &follows))
            } else {
                Err(refusal(
                    "`digest` must be the digest of a plan: at least 8 hexadecimal digits",
                    "the comment, the issue or the message of the stopped apply contains the digest",
                ))
            }
        }
        PortalOperation::Rollback => rollback(row, input, page),
        PortalOperation::Retry => retry(row, page),
        PortalOperation::Unlock | PortalOperation::Freeze | PortalOperation::Unfreeze => Err(refusal(
            "the portal does this itself",
            "there is nothing to do at the forge",
        )),
    }
}

/// Returns the forge of the page; GitHub if there is no page.
fn forge_of(page: Option<&WorkflowPage>) -> ForgeKind {
    page.map_or(ForgeKind::Github, |page| page.repository().kind())
}

/// Returns the step to start a workflow by hand, with the digest to approve. Only GitHub's `gh` can start a
/// workflow on the default branch without naming the branch, so only there is a command.
fn by_hand(page: Option<&WorkflowPage>, approve: Option<&str>, follows: &str) -> NextStep {
    let forge = forge_of(page);
    let starts = match forge {
        ForgeKind::Github | ForgeKind::Gitea => "Run the workflow by hand",
        ForgeKind::Gitlab => "Run a pipeline of the default branch",
    };
    let with = match (forge, approve) {
        (_, None) => ", with no `approve`".to_owned(),
        (ForgeKind::Github, Some(_)) => " with this digest as `approve`".to_owned(),
        (_, Some(digest)) => format!(" with `approve` set to `{digest}`"),
    };
    NextStep {
        forge,
        address: page.map(|page| page.url().to_owned()),
        command: (forge == ForgeKind::Github).then(|| workflow_command(page, approve)),
        says: format!("{starts}{with}. {follows}"),
    }
}

fn workflow_command(page: Option<&WorkflowPage>, approve: Option<&str>) -> String {
    let file = page.and_then(WorkflowPage::file).unwrap_or("konverge.yml");
    let mut command = format!("gh workflow run {file}");
    if let Some(page) = page {
        let _ = write!(command, " --repo {}", page.repository().name());
    }
    if let Some(digest) = approve {
        let _ = write!(command, " -f approve={digest}");
    }
    command
}

fn rollback(
    row: &OverviewRow,
    input: &OperationInput,
    page: Option<&WorkflowPage>,
) -> Result<NextStep, OperationRefusal> {
    let newest = row.applied.as_ref().map_or(0, |applied| applied.serial);
    let Some(serial) = input.serial.filter(|serial| (1..newest).contains(serial)) else {
        return Err(refusal(
            format!("`serial` must be an earlier serial than {newest}"),
            "the history of the stack lists the serials",
        ));
    };
    let folder = encoded(row.stack.or_root().as_str());
    Ok(NextStep {
        forge: forge_of(page),
        address: page.map(|page| page.repository().history(&folder)),
        command: Some(format!(
            "konverge state rollback {} --to {serial}",
            shell_word(row.id.as_str())
        )),
        says: "Revert the pull request that brought the change: its merge is reviewed and applied as usual. Use the command only if nothing can be merged.".to_owned(),
    })
}

fn retry(row: &OverviewRow, page: Option<&WorkflowPage>) -> Result<NextStep, OperationRefusal> {
    let stopped = row.stopped.as_ref().map(|stopped| &stopped.writer.run);
    let run = stopped.or_else(|| row.applied.as_ref().map(|applied| &applied.writer.run));
    if let Some(step) = run.and_then(|run| rerun(run, page)) {
        return Ok(step);
    }
    // Without a run to repeat, another run applies everything that is reviewed and not applied yet.
    let Some(page) = page else {
        return Err(refusal(
            "the last run of this stack is not one of GitHub's, and `portal.workflow` is not set",
            "set `portal.workflow` in konverge.yaml on the default branch",
        ));
    };
    let repository = page.repository();
    Ok(match repository.kind() {
        ForgeKind::Github => NextStep {
            forge: ForgeKind::Github,
            address: Some(page.url().to_owned()),
            command: Some(format!(
                "gh api repos/{}/dispatches -f event_type=konverge-apply",
                repository.path()
            )),
            says: "The event applies what was reviewed and is not applied yet.".to_owned(),
        },
        forge @ (ForgeKind::Gitea | ForgeKind::Gitlab) => NextStep {
            forge,
            address: Some(page.runs().to_owned()),
            command: None,
            says: "Run the jobs of the newest push to the default branch again. They apply what was reviewed and is not applied yet.".to_owned(),
        },
    })
}

/// Returns the step to repeat a run. `None` if the run belongs to another repository: a stored record must not send
/// people to any other place.
fn rerun(run: &str, page: Option<&WorkflowPage>) -> Option<NextStep> {
    let repository = match page {
        Some(page) => page.repository().clone(),
        None => RepositoryPages::parse(ForgeKind::Github, run.split_once("/actions/runs/")?.0)?,
    };
    let (address, command, what) = match (repository.kind(), repository.run(run)?) {
        (ForgeKind::Github, RunPage::Run(id)) => (
            format!("{}/actions/runs/{id}", repository.url()),
            Some(format!("gh run rerun {id} --repo {}", repository.name())),
            "Re-run the jobs of this run.",
        ),
        (ForgeKind::Gitlab, RunPage::Job(id)) => (
            run.to_owned(),
            Some(format!("glab ci retry {id} --repo {}", repository.url())),
            "Retry this job.",
        ),
        _ => (run.to_owned(), None, "Re-run the jobs of this run."),
    };
    Some(NextStep {
        forge: repository.kind(),
        address: page.map(|_| address),
        command,
        says: format!("{what} The run plans again, under the current rules."),
    })
}

fn refusal(message: impl Into<String>, hint: &'static str) -> OperationRefusal {
    OperationRefusal {
        message: message.into(),
        hint,
    }
}

fn is_digest(text: &str) -> bool {
    (8..=64).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// The characters that are not escaped in a path.
const PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'.')
    .remove(b'_')
    .remove(b'-')
    .remove(b'~');

/// Escapes a path for a URL.
fn encoded(path: &str) -> String {
    utf8_percent_encode(path, PATH).to_string()
}

/// Quotes an argument of a command that a person will copy.
pub(crate) fn shell_word(text: &str) -> String {
    // No shell can pass a NUL, so such a text becomes empty.
    let word = shlex::try_quote(text).unwrap_or_default();
    word.into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AppliedState, DriftView, StackCondition, StoppedView, Writer};
    use konverge_base::model::{Digest, apply_result::StackResult};

    const PAGE: &str = "https://github.com/acme/infra/actions/workflows/konverge.yml";

    fn row(id: &str, run: &str) -> OverviewRow {
        OverviewRow {
            stack: RepoPath::normalize("apps/a b").unwrap().into(),
            id: id.parse().unwrap(),
            conditions: vec![StackCondition::Applied],
            applied: Some(AppliedState {
                serial: 7,
                written: Timestamp::UNIX_EPOCH,
                reason: "apply".to_owned(),
                writer: Writer {
                    run: run.to_owned(),
                    actor: "ada".to_owned(),
                },
                result: None,
                commit: None,
                attempted: None,
            }),
            resources: 1,
            stopped: None,
            look: None,
            drift: None,
            error: None,
        }
    }

    fn step(
        operation: PortalOperation,
        row: &OverviewRow,
        input: OperationInput,
    ) -> Result<NextStep, OperationRefusal> {
        next_step(operation, row, &input, Some(PAGE))
    }

    #[test]
    fn each_request_leads_to_githubs_page_and_its_command() {
        let mut row = row(
            "shop/prod",
            "https://github.com/acme/infra/actions/runs/42/attempts/1",
        );
        let none = OperationInput::default;
        let check = step(PortalOperation::DriftCheck, &row, none()).unwrap();
        assert_eq!(check.address.as_deref(), Some(PAGE));
        assert_eq!(
            check.command.as_deref(),
            Some("gh workflow run konverge.yml --repo github.com/acme/infra")
        );
        assert!(step(PortalOperation::Restore, &row, none()).is_err());
        let digest = Digest::of_bytes(b"drift");
        row.drift = Some(DriftView {
            since: Timestamp::UNIX_EPOCH,
            checked: Timestamp::UNIX_EPOCH,
            digest,
        });
        let restore = step(PortalOperation::Restore, &row, none()).unwrap();
        assert!(
            restore
                .command
                .unwrap()
                .ends_with(&format!("-f approve={digest}"))
        );
        let retry = step(PortalOperation::Retry, &row, none()).unwrap();
        assert_eq!(
            retry.address.as_deref(),
            Some("https://github.com/acme/infra/actions/runs/42")
        );
        assert_eq!(
            retry.command.as_deref(),
            Some("gh run rerun 42 --repo github.com/acme/infra")
        );
        row.stopped = Some(StoppedView {
            at: Timestamp::UNIX_EPOCH,
            result: StackResult::Stopped,
            writer: Writer {
                run: "https://github.com/acme/infra/actions/runs/43".to_owned(),
                actor: "ada".to_owned(),
            },
        });
        assert!(
            step(PortalOperation::Retry, &row, none())
                .unwrap()
                .command
                .unwrap()
                .contains("rerun 43 ")
        );
        let back = step(
            PortalOperation::Rollback,
            &row,
            OperationInput {
                serial: Some(3),
                ..none()
            },
        )
        .unwrap();
        assert_eq!(
            back.address.as_deref(),
            Some("https://github.com/acme/infra/commits/HEAD/apps/a%20b")
        );
        assert_eq!(
            back.command.as_deref(),
            Some("konverge state rollback shop/prod --to 3")
        );
    }

    #[test]
    fn each_forge_has_its_own_pages() {
        let digest = "0123456789abcdef";
        let steps = |page: &str, run: &str| {
            let (row, page) = (row("shop/prod", run), Some(page));
            let approve = OperationInput {
                digest: Some(digest.to_owned()),
                ..OperationInput::default()
            };
            let none = OperationInput::default();
            [
                next_step(PortalOperation::Approve, &row, &approve, page).unwrap(),
                next_step(PortalOperation::Retry, &row, &none, page).unwrap(),
            ]
        };
        let gitea = "https://acme.example/git/acme/infra";
        let page = format!("{gitea}/actions?workflow=konverge.yml");
        let run = format!("{gitea}/actions/runs/7");
        let [approve, retry] = steps(&page, &run);
        assert_eq!((approve.address, approve.command), (Some(page.clone()), None));
        assert_eq!(
            approve.says,
            format!(
                "Run the workflow by hand with `approve` set to `{digest}`. Gitea's record of who started the run is the approval."
            )
        );
        assert_eq!((retry.address, retry.command), (Some(run), None));
        let [_, elsewhere] = steps(&page, "https://evil.example/acme/infra/actions/runs/7");
        assert_eq!(elsewhere.address, Some(page));

        let gitlab = "https://gitlab.com/acme/platform/infra";
        let page = format!("{gitlab}/-/pipelines/new");
        let job = format!("{gitlab}/-/jobs/77");
        let [approve, retry] = steps(&page, &job);
        assert_eq!(approve.address, Some(page.clone()));
        assert!(approve.says.starts_with("Run a pipeline "), "{}", approve.says);
        assert_eq!(
            (retry.address, retry.command),
            (Some(job), Some(format!("glab ci retry 77 --repo {gitlab}")))
        );
        let [_, elsewhere] = steps(&page, "ada@laptop");
        assert_eq!(elsewhere.address, Some(format!("{gitlab}/-/pipelines")));
    }

    #[test]
    fn nothing_that_somebody_wrote_becomes_a_command() {
        let hostile = row("a/$(id);'x", "https://github.com/acme/infra;id/actions/runs/4");
        let back = step(
            PortalOperation::Rollback,
            &hostile,
            OperationInput {
                serial: Some(3),
                ..OperationInput::default()
            },
        )
        .unwrap();
        assert_eq!(
            back.command.as_deref(),
            Some(r#"konverge state rollback 'a/$(id);'"'x" --to 3"#)
        );
        let elsewhere = row("a/b", "https://evil.example/acme/infra/actions/runs/4");
        for row in [&hostile, &elsewhere] {
            let retry = step(PortalOperation::Retry, row, OperationInput::default()).unwrap();
            assert_eq!(
                retry.command.as_deref(),
                Some("gh api repos/acme/infra/dispatches -f event_type=konverge-apply")
            );
            assert_eq!(retry.address.as_deref(), Some(PAGE));
        }
        let unknown = next_step(
            PortalOperation::Retry,
            &elsewhere,
            &OperationInput::default(),
            None,
        );
        assert_eq!(unknown.unwrap().address, None);
        for digest in [
            "",
            "0123",
            "0123456789abcdef; id",
            "0123456G",
            "01234567\n89",
            &"a".repeat(65),
        ] {
            let input = OperationInput {
                digest: Some(digest.to_owned()),
                ..OperationInput::default()
            };
            assert!(
                step(PortalOperation::Approve, &hostile, input).is_err(),
                "{digest}"
            );
        }
        for serial in [None, Some(0), Some(7), Some(8)] {
            let input = OperationInput {
                serial,
                ..OperationInput::default()
            };
            assert!(
                step(PortalOperation::Rollback, &hostile, input).is_err(),
                "{serial:?}"
            );
        }
        for run in [
            "javascript:alert(1)",
            "https://github.com/a/b/actions/runs/x",
            "https://github.com/actions/runs/4",
        ] {
            assert_eq!(rerun(run, None), None);
        }
    }
}
