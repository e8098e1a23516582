//! Whatever GitHub says in place of an answer, at whatever route: nothing is applied that the full answers would have
//! stopped, and nobody is told what is not true.
//!
//! A sample of all cases by a random seed, which is printed (`KONVERGE_FAULTS_SEED=n` repeats it); `make test-all` runs
//! every case.

use std::{collections::BTreeSet, time::SystemTime};

use konverge_base::model::comment_marker::{CommentMarker, MarkerKind};
use serde_json::json;

use crate::support::{
    ci_stage::{Ran, Stage},
    github::Act,
    random::{Random, setting},
};

/// What GitHub does in place of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Status(u16),
    /// The text of the answer ends in its middle.
    Truncated,
    Dropped,
}

const FAULTS: [Fault; 7] = [
    Fault::Status(403),
    Fault::Status(404),
    Fault::Status(429),
    Fault::Status(500),
    Fault::Status(502),
    Fault::Truncated,
    Fault::Dropped,
];

impl Fault {
    fn act(self) -> Act {
        match self {
            Self::Status(429) => {
                let headers = vec![("retry-after", "0".to_owned())];
                Act::Answer(
                    429,
                    headers,
                    json!({"message": "You have exceeded a secondary rate limit."}),
                )
            }
            Self::Status(status) => {
                let body = json!({"message": "Resource not accessible by integration"});
                Act::Answer(status, Vec::new(), body)
            }
            Self::Truncated => Act::Truncate,
            Self::Dropped => Act::DropBefore,
        }
    }
}

/// How many of the cases are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cases {
    Sampled,
    All,
}

/// Cases of a scenario in one run of the tests.
const SAMPLE: usize = 10;

impl Cases {
    /// Stacks and objects of the two runs of a scenario, which share a cluster, are called differently.
    fn named(self, name: &str) -> String {
        match self {
            Self::Sampled => name.to_owned(),
            Self::All => format!("{name}-all"),
        }
    }

    /// The cases of these routes.
    fn of(self, routes: &BTreeSet<(String, String)>) -> Vec<(String, String, Fault)> {
        let cases = routes
            .iter()
            .flat_map(|(method, path)| FAULTS.map(|fault| (method.clone(), path.clone(), fault)));
        let mut cases: Vec<_> = cases.collect();
        if self == Self::Sampled {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
            let seed = setting("KONVERGE_FAULTS_SEED", now.as_nanos() as u64 | 1);
            println!("KONVERGE_FAULTS_SEED={seed}");
            let mut random = Random::of(seed);
            // The first numbers of near seeds are near each other.
            for _ in 0..10 {
                random.next();
            }
            let all = std::mem::take(&mut cases);
            cases = (0..SAMPLE).map(|_| random.pick(&all).clone()).collect();
        }
        println!("{} cases at {} routes", cases.len(), routes.len());
        cases
    }
}

/// Every scenario twice.
macro_rules! scenarios {
    ($($name:ident)*) => {
        $(#[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            scenarios::$name(Cases::Sampled).await;
        })*
        mod every_case {
            $(#[tokio::test(flavor = "multi_thread")]
            #[ignore = "hundreds of runs: `make test-all`"]
            async fn $name() {
                super::scenarios::$name(super::Cases::All).await;
            })*
        }
    };
}

scenarios! {
    an_unprotected_branch_is_not_applied
    approvals_that_do_not_count_apply_nothing
    a_digest_of_its_own_author_applies_nothing
    an_environment_s_approval_by_the_pusher_applies_nothing
    what_is_reviewed_is_applied_or_told_as_not_applied
    a_preview_claims_no_more_than_it_recorded
}

/// The routes that the last runs asked, each run being made by `run`.
fn asked(stage: &mut Stage, times: usize, mut run: impl FnMut(&mut Stage)) -> BTreeSet<(String, String)> {
    let before = stage.github.requests().len();
    for _ in 0..times {
        run(stage);
    }
    let asked = stage.github.requests().split_off(before);
    asked
        .into_iter()
        .map(|request| (request.method, request.path))
        .collect()
}

/// The text of a comment without its marker, if this run wrote it.
fn written(stage: &Stage, kind: MarkerKind, run: u64) -> Option<String> {
    let comments = stage.comments();
    comments.into_iter().find_map(|(_, body)| {
        let marker = CommentMarker::parse(&body)?;
        (marker.kind == kind && marker.run == run).then(|| body.split_once('\n').unwrap().1.to_owned())
    })
}

/// What was compiled is the same in every run, and a run keeps its number: GitHub lists approvals by it.
fn prepare(stage: &mut Stage, run: Option<u64>) {
    let caches = stage.scratch.path().join("all-caches").display().to_string();
    stage.env.push(("XDG_CACHE_HOME", caches));
    if let Some(run) = run {
        stage.env.push(("GITHUB_RUN_ID", run.to_string()));
    }
}

/// With all answers `again` is stopped; so it has to be with fewer. `deciding` are the ends of routes that are asked,
/// on which it depends; a permission that is missing there is named.
async fn never_applied(
    stage: &mut Stage,
    cases: Cases,
    map: &str,
    deciding: &[&str],
    mut again: impl FnMut(&mut Stage) -> Ran,
) {
    let routes = asked(stage, 2, |stage| again(stage).outcome.check(3));
    assert_eq!(stage.value(map).await, None, "all answers stop it");
    for end in deciding {
        assert!(
            routes.iter().any(|(_, path)| path.ends_with(end)),
            "{end}: {routes:?}"
        );
    }
    let tip = stage.monorepo.rev("main");
    for (method, path, fault) in cases.of(&routes) {
        stage.github.broken(Some((&method, &path, fault.act())));
        let ran = again(stage);
        stage.github.broken(None);
        let said = ran.outcome.stdout.clone() + &ran.outcome.stderr;
        let case = format!("{fault:?} at {method} {path}: {said}");
        assert_eq!(stage.value(map).await, None, "{case}");
        assert!(!matches!(ran.outcome.code, Some(0) | None), "{case}");
        let decides = method == "GET" && deciding.iter().any(|end| path.ends_with(end));
        if decides && fault == Fault::Status(403) {
            assert!(said.contains(": read`"), "the permission is not named: {case}");
        }
        // What is told of it is true.
        let status = stage.status(&tip, "konverge/apply");
        assert_ne!(status.as_deref(), Some("success"), "{case}");
        for (_, body) in stage.comments() {
            let marker = CommentMarker::parse(&body).unwrap();
            let heading = body.lines().nth(1).unwrap_or_default();
            assert!(
                marker.kind != MarkerKind::Apply || !heading.contains("applied"),
                "{body} {case}"
            );
        }
        assert!(
            !ran.summary.contains("apply: 1 applied"),
            "{} {case}",
            ran.summary
        );
        assert!(
            !ran.outputs.contains("has-changes<<") || ran.output("has-changes") == "false",
            "{case}"
        );
        let closed = stage
            .github
            .world(|world| world.issues.iter().any(|issue| issue.state == "closed"));
        assert!(!closed, "the issue about it was closed: {case}");
    }
}

mod scenarios {
    use super::*;

    pub async fn an_unprotected_branch_is_not_applied(cases: Cases) {
        let (map, stack) = (cases.named("faults-open"), cases.named("open"));
        let mut stage = Stage::small("policy: {approvals: 1}\n").await;
        let (head, _) = stage.reviewed(7, "open", |stage| {
            stage.stack(&format!("{stack}/dev"), &[(&map, "one")])
        });
        stage.approved_by(7, "grace", &head);
        stage.github.world(|world| world.protected.clear());
        stage.press_merge(7, "open");
        prepare(&mut stage, None);
        let deciding = ["/acme/konfig", "/branches/main"];
        never_applied(&mut stage, cases, &map, &deciding, Stage::again).await;
        stage.github.world(|world| world.protected.push("main".into()));
        stage.again().outcome.check(0);
    }

    pub async fn approvals_that_do_not_count_apply_nothing(cases: Cases) {
        let (map, stack) = (cases.named("faults-seen"), cases.named("seen"));
        let mut stage = Stage::small("policy: {approvals: 1, reviewers: [acme/infra]}\n").await;
        let (head, _) = stage.reviewed(7, "seen", |stage| {
            stage.stack(&format!("{stack}/dev"), &[(&map, "one")])
        });
        stage.github.world(|world| {
            let token = world.tokens.get_mut("ghs_token").unwrap();
            token.permissions.insert("members", "read");
            world
                .teams
                .insert("acme/infra".into(), vec!["mallory".into(), "bob".into()]);
            world.collaborators.insert("bob".into(), "read");
            world.activity.retain(|moved| moved["after"] != head.as_str());
            world.moved("seen", None, &head, "branch_creation", "mallory");
        });
        // One who pushed it, one who may only look, one who is in no team.
        for login in ["mallory", "bob", "grace"] {
            stage.approved_by(7, login, &head);
        }
        stage.press_merge(7, "seen");
        prepare(&mut stage, None);
        let deciding = [
            "/pulls/7",
            "/pulls/7/commits",
            "/activity",
            "/pulls/7/reviews",
            "/bob/permission",
            "/memberships/grace",
        ];
        never_applied(&mut stage, cases, &map, &deciding, Stage::again).await;
    }

    /// A stack that somebody pushed without a review: the digest to agree to, and the route that compares it.
    fn pushed(stage: &mut Stage, stack: &str, map: &str) -> (String, String) {
        stage.github.world(|world| {
            world.collaborators.insert("dev".into(), "write");
        });
        let pushed = stage.straight_to_main(|stage| stage.stack(&format!("{stack}/dev"), &[(map, "one")]));
        let (base, tip) = (stage.monorepo.rev("main^1"), stage.monorepo.rev("main"));
        (pushed.digest(), format!("/compare/{base}...{tip}"))
    }

    pub async fn a_digest_of_its_own_author_applies_nothing(cases: Cases) {
        let (map, stack) = (cases.named("faults-alone"), cases.named("alone"));
        let mut stage = Stage::small("policy: {approvals: 1}\n").await;
        let (digest, compare) = pushed(&mut stage, &stack, &map);
        prepare(&mut stage, None);
        let deciding = ["/konfig/commits", "/activity", compare.as_str()];
        never_applied(&mut stage, cases, &map, &deciding, |stage| stage.approve(&digest)).await;
    }

    /// The second job of a push. The pusher let it go on, and somebody else another job.
    pub async fn an_environment_s_approval_by_the_pusher_applies_nothing(cases: Cases) {
        let (map, stack) = (cases.named("faults-gate"), cases.named("gate"));
        let mut stage = Stage::small("policy: {approvals: 1}\n").await;
        let (digest, compare) = pushed(&mut stage, &stack, &map);
        let let_go_on = |login: &str, environment: &str| {
            json!({"state": "approved", "comment": "", "user": {"login": login},
                "environments": [{"id": 1, "name": environment}]})
        };
        stage.github.world(|world| {
            world.run_approvals = vec![let_go_on("dev", "production"), let_go_on("eve", "staging")];
        });
        prepare(&mut stage, Some(7777));
        stage.env.push(("KONVERGE_APPROVE", digest));
        stage.env.push(("KONVERGE_ENVIRONMENT", "production".to_owned()));
        let deciding = [
            "/runs/7777/approvals",
            "/konfig/commits",
            "/activity",
            compare.as_str(),
        ];
        never_applied(&mut stage, cases, &map, &deciding, Stage::again).await;
        // Nobody at all.
        stage.github.world(|world| world.run_approvals.clear());
        let routes = asked(&mut stage, 1, |stage| stage.again().outcome.check(3));
        for (method, path, fault) in cases.of(&routes) {
            stage.github.broken(Some((&method, &path, fault.act())));
            let ran = stage.again();
            stage.github.broken(None);
            let said = &ran.outcome.stderr;
            assert_eq!(
                stage.value(&map).await,
                None,
                "{fault:?} at {method} {path}: {said}"
            );
            assert_ne!(ran.outcome.code, Some(0), "{fault:?} at {method} {path}: {said}");
        }
    }

    /// Each case is a change of its own, whose run GitHub answers badly; the next one catches up.
    pub async fn what_is_reviewed_is_applied_or_told_as_not_applied(cases: Cases) {
        let (map, stack) = (cases.named("faults-well"), cases.named("well"));
        let mut stage = Stage::small("policy: {approvals: 1}\n").await;
        prepare(&mut stage, None);
        let propose = |stage: &mut Stage, number: u64| {
            let (branch, value) = (format!("well-{number}"), number.to_string());
            let (head, _) = stage.reviewed(number, &branch, |stage| {
                stage.stack(&format!("{stack}/dev"), &[(&map, &value)]);
            });
            stage.approved_by(number, "grace", &head);
            stage.press_merge(number, &branch)
        };
        let mut routes = BTreeSet::new();
        for number in [100, 101] {
            let (before, after) = propose(&mut stage, number);
            let of_this = asked(&mut stage, 1, |stage| {
                stage.push(&before, &after).outcome.check(0)
            });
            // Numbers and commits of the next change are others.
            let (number, before, after) = (number.to_string(), before.as_str(), after.as_str());
            let named = |part: &str| match part {
                part if part == number => "NUMBER".to_owned(),
                part => part.replace(before, "BEFORE").replace(after, "AFTER"),
            };
            routes = of_this
                .into_iter()
                .map(|(method, path)| (method, path.split('/').map(named).collect::<Vec<_>>().join("/")))
                .collect();
        }
        for (at, (method, path, fault)) in cases.of(&routes).into_iter().enumerate() {
            let number = 200 + at as u64;
            let (before, after) = propose(&mut stage, number);
            let path = path.replace("NUMBER", &number.to_string());
            let path = path.replace("BEFORE", &before).replace("AFTER", &after);
            stage.github.broken(Some((&method, &path, fault.act())));
            let ran = stage.push(&before, &after);
            stage.github.broken(None);
            let said = ran.outcome.stdout.clone() + &ran.outcome.stderr;
            let case = format!("{fault:?} at {method} {path}: {said}");
            let applied = stage.value(&map).await == Some(number.to_string());
            assert_eq!(ran.outcome.code == Some(0), applied, "{case}");
            let status = stage.status(&after, "konverge/apply");
            let status = status.as_deref().unwrap_or("none");
            if applied {
                assert!(
                    ["success", "pending", "none"].contains(&status),
                    "{status} {case}"
                )
            } else {
                assert_ne!(status, "success", "{case}")
            }
            if let Some(told) = written(&stage, MarkerKind::Apply, 5000 + stage.runs) {
                let heading = told.lines().next().unwrap_or_default();
                assert_eq!(heading.contains("1 applied"), applied, "{told} {case}");
            }
            assert_eq!(
                ran.summary.contains("apply: 1 applied"),
                applied,
                "{} {case}",
                ran.summary
            );
            let issues = stage.github.world(|world| world.issues.len());
            assert_eq!(issues, 0, "a reviewed change was called unreviewed: {case}");
            if !applied {
                stage.again().outcome.check(0);
                assert_eq!(stage.value(&map).await, Some(number.to_string()), "{case}");
            }
        }
    }

    /// A rule is not satisfied, and the comment says so, or says nothing.
    pub async fn a_preview_claims_no_more_than_it_recorded(cases: Cases) {
        let (map, stack) = (cases.named("faults-show"), cases.named("show"));
        let mut stage = Stage::small("policy: {approvals: 1}\n").await;
        prepare(&mut stage, None);
        let head = stage.propose("show", |_| stage.stack(&format!("{stack}/dev"), &[(&map, "one")]));
        let (payload, trial) = stage.opened(7, "show", "opened", "acme/konfig");
        let routes = asked(&mut stage, 2, |stage| {
            stage.preview(7, &payload, &trial).outcome.check(0)
        });
        for (method, path, fault) in cases.of(&routes) {
            stage.github.world(|world| world.statuses.clear());
            stage.github.broken(Some((&method, &path, fault.act())));
            let ran = stage.preview(7, &payload, &trial);
            stage.github.broken(None);
            let said = ran.outcome.stdout.clone() + &ran.outcome.stderr;
            let case = format!("{fault:?} at {method} {path}: {said}");
            let run = 5000 + stage.runs;
            let records = stage.states().await.reviews().list().await.unwrap();
            let recorded = records.iter().any(|record| record.run == run);
            let told = written(&stage, MarkerKind::Preview, run);
            for text in told.iter().chain([&ran.summary]) {
                let claims = text.contains("**Merging** applies exactly this");
                assert!(!claims || recorded, "it is not recorded: {text} {case}");
                assert!(
                    !claims || text.contains("policy.approvals"),
                    "the rule is not shown: {text} {case}"
                );
                assert!(!text.contains("no changes"), "{text} {case}");
            }
            let status = stage.status(&head, "konverge/preview");
            if status.as_deref() == Some("success") {
                assert_eq!(ran.outcome.code, Some(0), "{case}");
            }
            if ran.outcome.code != Some(0) {
                assert!(ran.summary.contains("failed"), "{} {case}", ran.summary);
            }
        }
        assert_eq!(stage.value(&map).await, None);
    }
}
