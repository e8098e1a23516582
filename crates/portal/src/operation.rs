//! What a person can ask for: requests to CI, which the person makes at GitHub under their own name, and the few writes
//! that the portal makes itself.

use std::fmt::Write as _;

use jiff::Timestamp;
use konverge_base::model::{RepoPath, StackId};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};

use crate::{OverviewRow, forge::github_run};

/// A request that a person can make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PortalOperation {
    /// A drift check.
    DriftCheck,
    /// The restore of the drift that is known.
    Restore,
    /// The approval of a plan by its digest.
    Approve,
    /// An earlier serial again.
    Rollback,
    /// The last apply once more.
    Retry,
    /// The end of a lease.
    Unlock,
    /// The stop of all applies.
    Freeze,
    /// The end of that stop.
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

    /// The key in addresses and documents.
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

    /// The operation on a stack with a key.
    pub fn of_stack(key: &str) -> Option<Self> {
        Self::OF_A_STACK
            .into_iter()
            .find(|operation| operation.key() == key)
    }

    /// The words on a button.
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
    /// Why; `unlock`, `freeze` and `unfreeze` need it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The digest to approve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The serial to go back to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<u64>,
    /// The lease to end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
}

/// A person or a script, as its issuer names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortalPerson {
    /// The issuer.
    pub issuer: String,
    /// The subject: what the issuer never gives to anybody else.
    pub subject: String,
    /// The name that the issuer shows.
    pub name: String,
}

/// The page and the command with which a person continues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NextStep {
    /// The page at GitHub.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The command that does the same.
    pub command: String,
    /// The next step there.
    pub says: String,
}

/// The answer to a request. The JSON has `"version":1`.
#[derive(Debug, Clone, Serialize)]
pub struct OperationAnswer {
    /// Version of this format.
    pub version: u32,
    /// The operation that was asked for.
    pub operation: PortalOperation,
    /// The stack; none for a freeze.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stack: Option<StackId>,
    /// Its entry in the audit.
    pub audit: String,
    /// `asked`: the next step does it; `done`: the portal did it.
    pub outcome: RequestOutcome,
    /// The next step of the person, for a request to CI.
    #[serde(flatten)]
    pub next: Option<NextStep>,
}

/// The outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RequestOutcome {
    /// The person was told where to do it.
    Asked,
    /// The portal did it.
    Done,
    /// The portal could not do it.
    Failed,
    /// The portal began, and nothing says how it ended.
    Unknown,
}

impl RequestOutcome {
    /// The word in documents.
    pub fn key(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }
}

/// One entry of the audit.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry {
    /// Its id.
    pub id: String,
    /// When, by the clock of that process.
    pub time: Timestamp,
    /// The operation that was asked for.
    pub operation: PortalOperation,
    /// The stack; none for a freeze.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stack: Option<StackId>,
    /// The folder of the stack at that time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<RepoPath>,
    /// The input of the request.
    pub input: OperationInput,
    /// Who, as the login reported.
    pub person: PortalPerson,
    /// The address that the request came from.
    pub address: String,
    /// The client's address as proxies report it (`X-Forwarded-For`). Anybody can write it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forwarded_for: Option<String>,
    /// The outcome.
    pub outcome: RequestOutcome,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The number of newest entries that a page of the audit has.
pub const AUDIT_ENTRIES: usize = 500;
/// The number of newest entries of the audit for a spreadsheet.
pub const AUDIT_ROWS: usize = 5000;

/// The newest entries of the audit. The JSON has `"version":1`.
#[derive(Debug, Clone, Serialize)]
pub struct AuditDocument {
    /// Version of this format.
    pub version: u32,
    /// The newest first.
    pub entries: Vec<AuditEntry>,
    /// Entries that cannot be read, each with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
}

/// Why a request cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct OperationRefusal {
    /// The missing part.
    pub message: String,
    /// The next step.
    pub hint: &'static str,
}

/// The repository and the workflow of `portal.workflow`.
struct WorkflowPage<'a> {
    page: &'a str,
    /// `https://HOST/OWNER/NAME`.
    repository: &'a str,
    file: &'a str,
}

impl<'a> WorkflowPage<'a> {
    fn parse(page: &'a str) -> Option<Self> {
        let (repository, file) = page.split_once("/actions/workflows/")?;
        Some(Self {
            page,
            repository,
            file,
        })
    }

    /// `HOST/OWNER/NAME`, as `gh --repo` takes it.
    fn name(&self) -> &'a str {
        self.repository
            .strip_prefix("https://")
            .unwrap_or(self.repository)
    }
}

/// Returns the page and the command with which a person does it under their own name. No process of the portal has a
/// credential of GitHub.
///
/// # Errors
/// Something is missing: a digest, a serial, known drift, a run, or `portal.workflow`.
pub fn next_step(
    operation: PortalOperation,
    row: &OverviewRow,
    input: &OperationInput,
    workflow: Option<&str>,
) -> Result<NextStep, OperationRefusal> {
    let page = workflow.and_then(WorkflowPage::parse);
    let dispatch = |approve: Option<&str>, says: &str| {
        let page = page.as_ref();
        let file = page.map_or("konverge.yml", |page| page.file);
        let mut command = format!("gh workflow run {file}");
        if let Some(page) = page {
            let _ = write!(command, " --repo {}", page.name());
        }
        if let Some(digest) = approve {
            let _ = write!(command, " -f approve={digest}");
        }
        NextStep {
            address: page.map(|page| page.page.to_owned()),
            command,
            says: says.to_owned(),
        }
    };
    match operation {
        PortalOperation::DriftCheck => Ok(dispatch(
            None,
            "Run the workflow by hand, with no `approve`. It checks for drift, the stacks first that were checked least recently.",
        )),
        PortalOperation::Restore => match &row.drift {
            Some(drift) => Ok(dispatch(
                Some(&drift.digest.to_string()),
                "Run the workflow by hand with this digest as `approve`. It restores exactly this difference, if the policies let you.",
            )),
            None => Err(refusal(
                "no drift of this stack is known",
                "ask for a drift check first",
            )),
        },
        PortalOperation::Approve => {
            let digest = input.digest.as_deref().unwrap_or_default().trim();
            if is_digest(digest) {
                Ok(dispatch(
                    Some(digest),
                    "Run the workflow by hand with this digest as `approve`. GitHub's record of who started it is the approval.",
                ))
            } else {
                Err(refusal(
                    "`digest` must be the digest of a plan: at least 8 hexadecimal digits",
                    "the comment, the issue or the message of the stopped apply has it",
                ))
            }
        }
        PortalOperation::Rollback => rollback(row, input, page.as_ref()),
        PortalOperation::Retry => retry(row, page.as_ref()),
        PortalOperation::Unlock | PortalOperation::Freeze | PortalOperation::Unfreeze => Err(refusal(
            "the portal does this itself",
            "nothing is to be done at GitHub",
        )),
    }
}

fn rollback(
    row: &OverviewRow,
    input: &OperationInput,
    page: Option<&WorkflowPage<'_>>,
) -> Result<NextStep, OperationRefusal> {
    let newest = row.applied.as_ref().map_or(0, |applied| applied.serial);
    let Some(serial) = input.serial.filter(|serial| (1..newest).contains(serial)) else {
        return Err(refusal(
            format!("`serial` must be an earlier serial than {newest}"),
            "the history of the stack lists them",
        ));
    };
    let folder = row.stack.or_root().as_str();
    Ok(NextStep {
        address: page.map(|page| format!("{}/commits/HEAD/{}", page.repository, encoded(folder))),
        command: format!(
            "konverge state rollback {} --to {serial}",
            shell_word(row.id.as_str())
        ),
        says: "Revert the pull request that brought the change: its merge is reviewed and applied as usual. The command is for when nothing can be merged.".to_owned(),
    })
}

fn retry(row: &OverviewRow, page: Option<&WorkflowPage<'_>>) -> Result<NextStep, OperationRefusal> {
    let stopped = row.stopped.as_ref().map(|stopped| &stopped.writer.run);
    let run = stopped.or_else(|| row.applied.as_ref().map(|applied| &applied.writer.run));
    // The record names the run, so nobody is led to a repository that the default branch does not name.
    let run = run.and_then(|run| github_run(run));
    let run = run.filter(|(repository, _)| page.is_none_or(|page| page.name() == *repository));
    if let Some((repository, id)) = run {
        return Ok(NextStep {
            address: page.map(|_| format!("https://{repository}/actions/runs/{id}")),
            command: format!("gh run rerun {id} --repo {repository}"),
            says: "Re-run the jobs of this run. It plans again, under the rules that hold today.".to_owned(),
        });
    }
    match page {
        Some(page) => {
            let (_, path) = page.name().split_once('/').unwrap_or_default();
            Ok(NextStep {
                address: Some(page.page.to_owned()),
                command: format!("gh api repos/{path}/dispatches -f event_type=konverge-apply"),
                says: "The event applies what was reviewed and is not applied yet.".to_owned(),
            })
        }
        None => Err(refusal(
            "the last run of this stack is not one of GitHub's, and `portal.workflow` is not set",
            "set `portal.workflow` in konverge.yaml on the default branch",
        )),
    }
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

/// The characters that stay as they are in a path.
const PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'.')
    .remove(b'_')
    .remove(b'-')
    .remove(b'~');

/// A path in an address.
fn encoded(path: &str) -> String {
    utf8_percent_encode(path, PATH).to_string()
}

/// A word of a command that a person copies.
pub(crate) fn shell_word(text: &str) -> String {
    // No shell has a word with a NUL.
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
            check.command,
            "gh workflow run konverge.yml --repo github.com/acme/infra"
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
            restore.command.ends_with(&format!("-f approve={digest}")),
            "{restore:?}"
        );
        let retry = step(PortalOperation::Retry, &row, none()).unwrap();
        assert_eq!(
            retry.address.as_deref(),
            Some("https://github.com/acme/infra/actions/runs/42")
        );
        assert_eq!(retry.command, "gh run rerun 42 --repo github.com/acme/infra");
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
        assert_eq!(back.command, "konverge state rollback shop/prod --to 3");
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
        assert_eq!(back.command, r#"konverge state rollback 'a/$(id);'"'x" --to 3"#);
        let elsewhere = row("a/b", "https://evil.example/acme/infra/actions/runs/4");
        for row in [&hostile, &elsewhere] {
            let retry = step(PortalOperation::Retry, row, OperationInput::default()).unwrap();
            assert_eq!(
                retry.command,
                "gh api repos/acme/infra/dispatches -f event_type=konverge-apply"
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
            assert_eq!(github_run(run), None);
        }
    }
}
