//! A policy check whose facts are given, for tests.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use konverge_base::model::{
    CommitId, RepoPath,
    event::NoEvents,
    plan::{Action, Basis, ResourcePlan, StackPlan},
    spec::RuntimeKind,
};
use konverge_config::Config;
use konverge_policy::Stage;
use konverge_repo::git::Repository;
use konverge_run::{NoNotes, RunContext, rule_evaluator::RuleEvaluator};
use konverge_secrets::{HashKey, Secrets};

use crate::{
    policy::{
        active_policies::{Archive, CommitPolicy, ReviewedPolicies},
        policy_check::PolicyCheck,
        pull_head::PullHead,
    },
    trust::{
        authority::DispatchApprovers,
        reviewers::{KnownPeople, Reviewers},
    },
};

/// The folder of the stack of [`plan`].
const FOLDER: &str = "apps/shop/prod";

/// `aaaa…`.
pub(crate) fn commit(name: char) -> CommitId {
    name.to_string().repeat(40).parse().unwrap()
}

/// Pull request 7, at the commit `aaaa…`.
pub(crate) fn pull_head() -> PullHead {
    PullHead {
        number: 7,
        head: commit('a'),
    }
}

/// A policy of a commit, by what `konverge.yaml` says.
pub(crate) fn policy(text: &str) -> CommitPolicy {
    let config = Config::parse(&format!("version: 1\n{text}")).unwrap();
    CommitPolicy::from_config(&config, None)
}

/// A plan of `shop/prod` with a resource for each of these actions.
pub(crate) fn plan(actions: &[Action]) -> StackPlan {
    let id = "shop/prod".parse().unwrap();
    let resources = actions.iter().enumerate().map(|(nth, action)| {
        let resource = format!("v1:ConfigMap:shop:web-{nth}").parse().unwrap();
        ResourcePlan::new(&id, resource, RuntimeKind::Kubernetes, *action, Vec::new())
    });
    let resources = resources.collect();
    StackPlan::new(RepoPath::normalize(FOLDER).unwrap(), id, Basis::Live, resources)
}

/// A repository with these files in one commit after another: its folder, its archive and the commits.
pub(crate) fn archive(commits: &[Vec<(&str, String)>]) -> (tempfile::TempDir, Archive, Vec<CommitId>) {
    let folder = tempfile::tempdir().unwrap();
    let git = |arguments: &[&str]| {
        let mut git = std::process::Command::new("git");
        git.args(["-c", "user.name=ada", "-c", "user.email=ada@example.com"]);
        let output = git.current_dir(folder.path()).args(arguments).output().unwrap();
        assert!(output.status.success(), "git {}", arguments.join(" "));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    git(&["init", "--quiet"]);
    let made = commits.iter().map(|files| {
        for (path, text) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        git(&["add", "--all"]);
        git(&["commit", "--quiet", "--allow-empty", "--message", "m"]);
        git(&["rev-parse", "HEAD"]).parse().unwrap()
    });
    let made = made.collect();
    let archive = Archive::in_repository(Repository::discover(folder.path()).unwrap());
    (folder, archive, made)
}

/// A run in a folder, without an environment.
pub(crate) fn run_context(dir: &Path, secrets: Secrets) -> RunContext {
    RunContext {
        dir: dir.to_owned(),
        env: BTreeMap::new(),
        secrets,
        cancel: Default::default(),
        writes: Arc::default(),
        events: Arc::new(NoEvents),
        notes: Arc::new(NoNotes),
        recorder: Default::default(),
    }
}

/// The check of a run of ada's that applies the commit `f…` of `main`, in the environment `production`.
pub(crate) fn check(text: &str, known: KnownPeople) -> PolicyCheck {
    let folder = tempfile::tempdir().unwrap();
    let mut git = std::process::Command::new("git");
    assert!(
        git.args(["init", "--quiet"])
            .arg(folder.path())
            .status()
            .unwrap()
            .success()
    );
    let secrets = Secrets::new(HashKey::derive("k"));
    PolicyCheck {
        stage: Stage::Apply,
        actor: "ada".to_owned(),
        pushed: false,
        run: run_context(folder.path(), secrets.clone()),
        run_id: 1,
        environment: Some("production".to_owned()),
        protected: true,
        applied: Some(("main".to_owned(), commit('f'))),
        people: Reviewers::knowing(known, FOLDER),
        authors: BTreeMap::new(),
        own: Arc::new(policy(text)),
        reviewed: ReviewedPolicies::default(),
        archive: Archive::in_repository(Repository::discover(folder.path()).unwrap()),
        restoring: false,
        agreeing: DispatchApprovers::Environment,
        evaluator: RuleEvaluator::new(&secrets),
    }
}
