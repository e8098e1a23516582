//! Parses the payload of the event that started the run.

use std::{collections::BTreeMap, fs};

use serde_json::Value;

use super::{dialect::Dialect, runner::Runner};
use konverge_base::{error::SharedError, model::CommitId};
use konverge_forge::{ForgeError, JobEvent, PullRequestEvent, PushEvent, WorkflowRunEvent};

const DEPENDABOT: &str = "dependabot[bot]";

const ZERO: &str = "0000000000000000000000000000000000000000";

impl Runner {
    /// Parses the payload of the event.
    ///
    /// # Errors
    /// An unreadable payload; an event that Konverge does not support or refuses.
    pub(super) fn read_event(&self) -> Result<JobEvent, ForgeError> {
        let unreadable = |cause: SharedError| ForgeError::Unusable {
            message: format!("the event's payload {} cannot be read", self.event_path.display()),
            hint: "in a `container:` job mount the folder that GITHUB_EVENT_PATH names".to_owned(),
            cause,
        };
        let text = fs::read_to_string(&self.event_path).map_err(|error| unreadable(error.into()))?;
        let payload: Value = serde_json::from_str(&text).map_err(|error| unreadable(error.into()))?;
        self.parse_event(&self.info.event_name, &payload)
    }

    /// Parses an event. `pull_request_target` is refused, because it gives the secrets of the repository to code
    /// from forks.
    ///
    /// # Errors
    /// A payload without required fields; an unknown or refused event.
    pub fn parse_event(&self, name: &str, payload: &Value) -> Result<JobEvent, ForgeError> {
        let p = Payload(payload);
        match name {
            "pull_request" => pull_request(&p, self).map(JobEvent::PullRequest),
            "push" => Ok(JobEvent::Push(PushEvent {
                ref_name: p.text("/ref")?,
                before: p.commit_or_zero("/before")?,
                after: p.commit_or_zero("/after")?,
                forced: payload["forced"].as_bool().unwrap_or(false),
                default_branch: p.text("/repository/default_branch")?,
            })),
            "merge_group" => {
                let head_ref = p.text("/merge_group/head_ref")?;
                Ok(JobEvent::MergeGroup {
                    base: p.commit("/merge_group/base_sha")?,
                    head: p.commit("/merge_group/head_sha")?,
                    base_branch: branch(&p.text("/merge_group/base_ref")?),
                    default_branch: p.text("/repository/default_branch")?,
                    pull_request: queued_pull_request(&head_ref),
                })
            }
            "schedule" => Ok(JobEvent::Schedule {
                cron: payload["schedule"].as_str().unwrap_or_default().to_owned(),
            }),
            "workflow_dispatch" => Ok(JobEvent::WorkflowDispatch {
                inputs: inputs(payload),
                ref_name: match self.dialect {
                    Dialect::Github => p.text("/ref")?,
                    // The payload has the ref in the form that the caller typed, perhaps without `refs/heads/`. The
                    // runner's variable has the full ref.
                    Dialect::Gitea => self.info.ref_name.clone(),
                },
                default_branch: p.text("/repository/default_branch")?,
            }),
            "workflow_run" => Ok(JobEvent::WorkflowRun(WorkflowRunEvent {
                run_id: payload["workflow_run"]["id"].as_u64().unwrap_or(0),
                event: p.text("/workflow_run/event")?,
                conclusion: payload["workflow_run"]["conclusion"].as_str().unwrap_or_default().to_owned(),
                head: p.commit("/workflow_run/head_sha")?,
                head_branch: payload["workflow_run"]["head_branch"].as_str().unwrap_or_default().to_owned(),
                head_repository: p.text("/workflow_run/head_repository/full_name").unwrap_or_default(),
                default_branch: p.text("/repository/default_branch")?,
                from_fork: p.text("/workflow_run/head_repository/full_name").ok() != Some(self.info.repository.clone()),
                dependabot: p.text("/workflow_run/actor/login").is_ok_and(|actor| actor == DEPENDABOT),
                pull_request: match self.dialect {
                    Dialect::Github => None,
                    Dialect::Gitea => pull_request_of_run(payload["workflow_run"]["path"].as_str().unwrap_or_default()),
                },
            })),
            "repository_dispatch" => Ok(JobEvent::RepositoryDispatch {
                action: p.text("/action")?,
                payload: payload["client_payload"].clone(),
            }),
            "pull_request_target" => Err(ForgeError::Runner {
                message: "the event pull_request_target is refused: it would run code from outside with the secrets and write access of this repository".to_owned(),
                hint: "use `on: pull_request:`; a fork's pull request is previewed by a second workflow on `workflow_run`, see docs/security.md".to_owned(),
            }),
            other => Err(ForgeError::Runner {
                message: format!("Konverge does not handle the event `{}`", other.escape_debug()),
                hint: "Konverge handles pull_request, push, merge_group, schedule, workflow_dispatch, workflow_run and repository_dispatch".to_owned(),
            }),
        }
    }
}

fn pull_request(p: &Payload<'_>, runner: &Runner) -> Result<PullRequestEvent, ForgeError> {
    let head = p.commit("/pull_request/head/sha")?;
    let action = p.text("/action")?;
    let home =
        p.0.pointer("/pull_request/head/repo/full_name")
            .and_then(Value::as_str);
    let base_repository = p
        .text("/pull_request/base/repo/full_name")
        .unwrap_or_else(|_| runner.info.repository.clone());
    // `GITHUB_SHA` is the test merge, except for a closed pull request, where it is a commit of the base branch.
    // Gitea makes no test merge.
    let trial = runner.dialect == Dialect::Github
        && action != "closed"
        && runner.info.ref_name.starts_with("refs/pull/")
        && runner.info.sha != head;
    let (other_base, without_branch) = match runner.dialect {
        Dialect::Github => ("/changes/base", false),
        // A push to `refs/for/main` creates a pull request without write permission. Its head is in this repository
        // but on no branch, so it must be treated like a fork's.
        Dialect::Gitea => (
            "/changes/ref",
            p.text("/pull_request/head/label")
                .is_ok_and(|name| name.is_empty()),
        ),
    };
    Ok(PullRequestEvent {
        base_changed: action == "edited" && p.0.pointer(other_base).is_some(),
        number: p.number("/pull_request/number")?,
        author: p.text("/pull_request/user/login").unwrap_or_default(),
        base: p.commit("/pull_request/base/sha")?,
        base_branch: p.text("/pull_request/base/ref")?,
        default_branch: p.text("/repository/default_branch")?,
        head_branch: p.text("/pull_request/head/ref")?,
        merge_commit: trial.then(|| runner.info.sha.clone()),
        // If the repository of the head was deleted, it was a fork.
        from_fork: home != Some(&base_repository) || without_branch,
        // The sender counts too: a re-run by another user must not give the run more permissions.
        dependabot: runner.info.actor == DEPENDABOT
            || p.text("/sender/login").is_ok_and(|login| login == DEPENDABOT),
        merged: p
            .0
            .pointer("/pull_request/merged")
            .and_then(Value::as_bool)
            .unwrap_or(false),
        action,
        head,
    })
}

fn branch(name: &str) -> String {
    name.strip_prefix("refs/heads/").unwrap_or(name).to_owned()
}

/// Returns the pull request in Gitea's path of a run: `konverge.yml@refs/pull/12/head` gives 12. The path is split
/// at its first `@`, because a branch may have the name `x@refs/pull/12/head`.
fn pull_request_of_run(path: &str) -> Option<u64> {
    let (_, full_ref) = path.split_once('@')?;
    full_ref
        .strip_prefix("refs/pull/")?
        .strip_suffix("/head")?
        .parse()
        .ok()
}

/// Returns the last pull request of a merge group: `refs/heads/gh-readonly-queue/main/pr-12-<sha>` gives 12. The
/// name of the branch may contain any text.
fn queued_pull_request(head_ref: &str) -> Option<u64> {
    let last = head_ref.rsplit('/').next()?;
    let (number, sha) = last.strip_prefix("pr-")?.split_once('-')?;
    (sha.len() == 40).then(|| number.parse().ok())?
}

fn inputs(payload: &Value) -> BTreeMap<String, String> {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    payload["inputs"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.clone(), text(value)))
        .collect()
}

struct Payload<'a>(&'a Value);

impl Payload<'_> {
    fn text(&self, path: &str) -> Result<String, ForgeError> {
        self.at(path, |value| value.as_str().map(str::to_owned))
    }

    fn number(&self, path: &str) -> Result<u64, ForgeError> {
        self.at(path, Value::as_u64)
    }

    fn commit(&self, path: &str) -> Result<CommitId, ForgeError> {
        self.at(path, |value| value.as_str()?.parse().ok())
    }

    fn commit_or_zero(&self, path: &str) -> Result<Option<CommitId>, ForgeError> {
        let text = self.text(path)?;
        if text == ZERO {
            Ok(None)
        } else {
            self.commit(path).map(Some)
        }
    }

    fn at<T>(&self, path: &str, read: impl Fn(&Value) -> Option<T>) -> Result<T, ForgeError> {
        self.0
            .pointer(path)
            .and_then(read)
            .ok_or_else(|| ForgeError::Runner {
                message: format!(
                    "the event's payload has no usable `{}`",
                    path.trim_start_matches('/').replace('/', ".")
                ),
                hint: "check that GITHUB_EVENT_NAME is the event in the file that GITHUB_EVENT_PATH names"
                    .to_owned(),
            })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use serde_json::json;

    use super::*;

    /// The variables of a Gitea runner.
    fn variables(event: &str) -> HashMap<String, String> {
        let variables = [
            ("GITHUB_EVENT_NAME", event),
            ("GITHUB_EVENT_PATH", "/event.json"),
            ("GITHUB_REPOSITORY", "acme/konfig"),
            ("GITHUB_SHA", "1111111111111111111111111111111111111111"),
            ("GITHUB_REF", "refs/heads/main"),
            ("GITHUB_RUN_ID", "7"),
            ("GITHUB_SERVER_URL", "https://acme.example/git/"),
            ("GITHUB_WORKFLOW", "konverge.yml"),
            ("GITHUB_STEP_SUMMARY", "/summary.md"),
        ];
        variables
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into()
    }

    fn gitea(event: &str) -> Runner {
        Runner::from_env(&variables(event), Dialect::Gitea).unwrap()
    }

    fn parse(event: &str, payload: &Value) -> JobEvent {
        gitea(event).parse_event(event, payload).unwrap()
    }

    #[test]
    fn pages_of_gitea_have_no_attempts_and_no_summary() {
        use konverge_forge::CiJob as _;

        let runner = gitea("push");
        let page = "https://acme.example/git/acme/konfig/actions/runs/7";
        assert_eq!(
            (runner.run_url().as_str(), runner.attempt_url().as_str()),
            (page, page)
        );
        assert!(runner.is_page_of_run(page) && !runner.is_later_page(page));
        assert_eq!(runner.info().workflow_file.as_deref(), Some("konverge.yml"));
        assert!(runner.token_issuer().is_err());
        runner.add_summary("nobody would see it").unwrap();
        assert_eq!(runner.summary_length(), 0);
    }

    #[test]
    fn the_page_of_a_run_at_forgejo_has_the_number_in_the_repository() {
        use konverge_forge::CiJob as _;

        let runner = |number: &str| {
            let mut variables = variables("push");
            variables.insert("FORGEJO_ACTIONS".to_owned(), "true".to_owned());
            variables.insert("GITHUB_RUN_NUMBER".to_owned(), number.to_owned());
            Runner::from_env(&variables, Dialect::Gitea).unwrap()
        };
        let page = |number: u64| format!("https://acme.example/git/acme/konfig/actions/runs/{number}");
        let run = runner("3");
        assert_eq!((run.run_url(), run.info().run_id), (page(3), 7));
        assert!(run.is_page_of_run(&page(3)) && !run.is_later_page(&page(3)));
        assert!(run.is_later_page(&page(4)) && !run.is_later_page(&page(2)));
        assert!(!run.is_page_of_run(&page(7)));
        // A runner that names no number.
        assert_eq!(runner("").run_url(), page(7));
    }

    #[test]
    fn a_head_without_a_branch_is_from_outside() {
        let pull = |label: &str, from: &str| {
            let payload = json!({
                "action": "edited", "number": 7, "changes": {"ref": {"from": "elsewhere"}},
                "repository": {"default_branch": "main"},
                "pull_request": {
                    "number": 7, "user": {"login": "eve"}, "merged": false,
                    "base": {"sha": "a".repeat(40), "ref": "main", "repo": {"full_name": "acme/konfig"}},
                    "head": {"sha": "b".repeat(40), "ref": "topic", "label": label, "repo": {"full_name": from}},
                },
            });
            match parse("pull_request", &payload) {
                JobEvent::PullRequest(event) => event,
                other => panic!("{other:?}"),
            }
        };
        let own = pull("topic", "acme/konfig");
        assert!(!own.is_from_outside() && own.base_changed && own.merge_commit.is_none());
        assert!(pull("topic", "eve/konfig").is_from_outside());
        assert!(pull("", "acme/konfig").is_from_outside());
    }

    #[test]
    fn another_run_is_known_by_its_pull_request() {
        let run = |path: &str| {
            let payload = json!({
                "repository": {"default_branch": "main"},
                "workflow_run": {"id": 3, "event": "pull_request", "conclusion": "success", "path": path, "head_sha": "b".repeat(40)},
            });
            match parse("workflow_run", &payload) {
                JobEvent::WorkflowRun(event) => event,
                other => panic!("{other:?}"),
            }
        };
        let event = run("konverge.yml@refs/pull/12/head");
        assert_eq!(event.pull_request, Some(12));
        assert!(event.from_outside(), "whose it is is asked");
        for other in [
            "konverge.yml@refs/heads/main",
            "a@refs/pull/1/heads/x",
            "konverge.yml@refs/heads/x@refs/pull/12/head",
            "",
        ] {
            assert_eq!(run(other).pull_request, None, "{other}");
        }
    }

    #[test]
    fn a_dispatch_has_the_whole_name_of_its_branch() {
        let payload =
            json!({"ref": "main", "inputs": {"approve": "d"}, "repository": {"default_branch": "main"}});
        let JobEvent::WorkflowDispatch { ref_name, inputs, .. } = parse("workflow_dispatch", &payload) else {
            panic!("another event");
        };
        assert_eq!(
            (ref_name.as_str(), inputs["approve"].as_str()),
            ("refs/heads/main", "d")
        );
    }
}
