use konverge_base::model::plan::Action;
use konverge_forge::Permission;

use super::*;
use crate::{
    policy::{
        active_policies::ReviewScope,
        plan_approvals::CoveredCommits,
        policy_fixture::{archive, check, commit, plan, policy, pull_head},
    },
    trust::reviewers::KnownPeople,
};

/// The changes of these pull requests, whose plan nobody gave a digest for.
fn of_pulls(pulls: &[PullHead]) -> PlanApprovals<'static> {
    PlanApprovals {
        pulls: pulls.to_vec(),
        ..PlanApprovals::default()
    }
}

/// A plan whose digest was given.
fn agreed<'a>(plan: &StackPlan, covered: CoveredCommits<'a>) -> PlanApprovals<'a> {
    PlanApprovals::new(&plan.id, Vec::new(), &BTreeSet::from([plan.digest]), covered)
}

/// The rules that deny.
async fn denied(check: &PolicyCheck, plan: &StackPlan, pulls: &[PullHead]) -> Vec<String> {
    let findings = check.findings(plan, &of_pulls(pulls)).await.unwrap();
    let denied = findings
        .into_iter()
        .filter(|finding| finding.verdict == Enforcement::Deny);
    denied.map(|finding| finding.rule).collect()
}

#[tokio::test]
async fn each_policy_under_which_it_was_reviewed_must_be_satisfied() {
    let deletes = plan(&[Action::Delete, Action::Delete]);
    let free = check("", KnownPeople::default());
    assert!(denied(&free, &deletes, &[]).await.is_empty());
    let strict = Arc::new(policy("policy: {max_destructive: 1, drift: stop}\n"));
    let mut reviewed = ReviewedPolicies::default();
    reviewed.add(7, ReviewScope::All, strict);
    let free = PolicyCheck { reviewed, ..free };
    let pulls = [pull_head()];
    assert_eq!(denied(&free, &deletes, &pulls).await, ["policy.max_destructive"]);
    // Of another pull request it does not count.
    assert!(
        denied(
            &free,
            &deletes,
            &[PullHead {
                number: 8,
                ..pull_head()
            }]
        )
        .await
        .is_empty()
    );
    assert_eq!(
        free.drift(&deletes, &of_pulls(&pulls)).await.unwrap(),
        DriftPolicy::Stop
    );
    assert_eq!(
        free.drift(&deletes, &PlanApprovals::default()).await.unwrap(),
        DriftPolicy::Restore
    );
    let own = check("policy: {drift: stop}\n", KnownPeople::default());
    assert_eq!(
        own.drift(&deletes, &PlanApprovals::default()).await.unwrap(),
        DriftPolicy::Stop
    );
}

#[tokio::test]
async fn an_approval_counts_on_the_last_head_by_somebody_else_who_may_write() {
    let update = plan(&[Action::Update]);
    let approved_by = |reviewer, head, may, is_own: bool| {
        let known = KnownPeople {
            permissions: vec![("ada", Permission::Write), (reviewer, may)],
            approvals: vec![(7, reviewer, commit(head))],
            pulls: vec![(7, if is_own { vec![reviewer] } else { vec!["ada"] }, false)],
            ..KnownPeople::default()
        };
        check("policy: {approvals: 1}\n", known)
    };
    let pulls = [pull_head()];
    for (check, rules) in [
        (approved_by("bob", 'a', Permission::Write, false), vec![]),
        (
            approved_by("bob", 'b', Permission::Write, false),
            vec!["policy.approvals"],
        ),
        (
            approved_by("bob", 'a', Permission::Read, false),
            vec!["policy.approvals"],
        ),
        (
            approved_by("bob", 'a', Permission::Write, true),
            vec!["policy.approvals"],
        ),
    ] {
        assert_eq!(denied(&check, &update, &pulls).await, rules);
    }
    // An unchanged stack needs none.
    let nobody = check("policy: {approvals: 1}\n", KnownPeople::default());
    assert!(denied(&nobody, &plan(&[]), &pulls).await.is_empty());
}

#[tokio::test]
async fn the_record_names_the_reviewers_of_the_last_head_and_who_gave_the_digest() {
    let since = commit('e');
    let covered = CoveredCommits {
        since: Some(&since),
        until: None,
    };
    let pulls = [pull_head()];
    let given = |plan: &StackPlan| PlanApprovals {
        pulls: pulls.to_vec(),
        ..agreed(plan, covered)
    };
    let known = || KnownPeople {
        approvals: vec![(7, "bob", commit('a')), (7, "old", commit('b'))],
        approved_run: vec!["carol", "dora"],
        commits: vec![(commit('e'), commit('f'), vec!["dora"], false)],
        ..KnownPeople::default()
    };
    let update = plan(&[Action::Update]);
    let authorization = check("", known()).authorization(&update, &given(&update)).await;
    let [pull] = &authorization.pull_requests[..] else {
        panic!("{authorization:?}")
    };
    assert_eq!((pull.number, &pull.head), (7, &commit('a')));
    assert_eq!(pull.reviewers, Some(vec!["bob".to_owned()]));
    assert_eq!(authorization.agreed_by, ["carol", "dora"]);
    // Where approvals are required, who wrote it approved nothing.
    let strict = check("policy: {approvals: 1}\n", known());
    assert_eq!(
        strict.authorization(&update, &given(&update)).await.agreed_by,
        ["carol"]
    );
    assert!(
        strict
            .authorization(&update, &of_pulls(&pulls))
            .await
            .agreed_by
            .is_empty()
    );
    let unchanged = strict.authorization(&plan(&[]), &given(&plan(&[]))).await;
    assert_eq!(unchanged, Authorization::default());
}

/// Nobody loosens the rules for what they bring with the same digest.
#[tokio::test]
async fn a_digest_is_judged_by_the_policy_before_its_commits_too() {
    let of = |text: &str| vec![("konverge.yaml", format!("version: 1\n{text}"))];
    let (_folder, archive, commits) = archive(&[of("policy: {drift: stop}\n"), of("")]);
    let known = KnownPeople {
        commits: [&commits[0], &commits[1], &commit('9')]
            .map(|since| (since.clone(), commit('f'), vec!["ada"], false))
            .into(),
        ..KnownPeople::default()
    };
    let check = PolicyCheck {
        archive,
        ..check("", known)
    };
    let update = plan(&[Action::Update]);
    let drift = async |since: &CommitId, until: Option<&CommitId>| {
        let since = Some(since);
        let approvals = agreed(&update, CoveredCommits { since, until });
        check.drift(&update, &approvals).await
    };
    assert_eq!(drift(&commits[0], None).await.unwrap(), DriftPolicy::Stop);
    assert_eq!(drift(&commits[1], None).await.unwrap(), DriftPolicy::Restore);
    // What is restored was applied under that policy.
    let applied = drift(&commits[0], Some(&commits[1])).await;
    assert_eq!(applied.unwrap(), DriftPolicy::Restore);
    assert_eq!(
        check.drift(&update, &PlanApprovals::default()).await.unwrap(),
        DriftPolicy::Restore
    );
    // A policy that cannot be read lets nothing pass.
    assert!(drift(&commit('9'), None).await.is_err());
}

#[test]
fn a_moved_secret_is_written_unless_the_configuration_stops_it() {
    for (text, follows) in [
        ("", true),
        ("secrets: {rotation: follow}\n", true),
        ("secrets: {rotation: stop}\n", false),
    ] {
        assert_eq!(
            check(text, KnownPeople::default()).follows_rotation(),
            follows,
            "{text}"
        );
    }
}

#[tokio::test]
async fn the_actor_of_a_push_has_write_access() {
    let update = plan(&[Action::Update]);
    let app = || check("policy: {actors: [ada]}\n", KnownPeople::default());
    // GitHub has no permission for an App.
    assert_eq!(denied(&app(), &update, &[]).await, ["policy.actors"]);
    let pushed = PolicyCheck {
        pushed: true,
        ..app()
    };
    assert!(denied(&pushed, &update, &[]).await.is_empty());
}

#[tokio::test]
async fn restoring_needs_no_second_approval_and_keeps_freezes_and_the_size() {
    let rules = "policy:\n  approvals: 1\n  actors: [eve]\n  max_destructive: 0\n  \
                 freeze: [{from: '2000-01-01T00:00:00Z', until: '2999-01-01T00:00:00Z', reason: always}]\n";
    let deletes = plan(&[Action::Delete]);
    let all = denied(&check(rules, KnownPeople::default()), &deletes, &[]).await;
    assert!(
        all.contains(&"policy.approvals".to_owned()) && all.contains(&"policy.actors".to_owned()),
        "{all:?}"
    );
    let mut restoring = check(rules, KnownPeople::default());
    restoring.restoring = true;
    let mut left = denied(&restoring, &deletes, &[]).await;
    left.sort();
    assert_eq!(left, ["policy.freeze", "policy.max_destructive"]);
}

#[tokio::test]
async fn a_given_digest_allows_any_size_if_its_giver_took_no_part() {
    let deletes = plan(&[Action::Delete]);
    let since = commit('e');
    let covered = CoveredCommits {
        since: Some(&since),
        until: None,
    };
    let denied = async |rules: &str, giver: &'static str, contributor: &'static str| {
        let known = KnownPeople {
            permissions: vec![("ada", Permission::Write)],
            approved_run: vec![giver],
            commits: vec![(commit('e'), commit('f'), vec![contributor], false)],
            ..KnownPeople::default()
        };
        let check = check(rules, known);
        let own = check.own.rules(&deletes).unwrap().remove(0);
        let findings = check
            .judge(&check.own, &own, &deletes, &agreed(&deletes, covered))
            .await
            .unwrap();
        let denied = findings
            .into_iter()
            .filter(|finding| finding.verdict == Enforcement::Deny);
        denied.map(|finding| finding.rule).collect::<Vec<_>>()
    };
    let size = "policy: {max_destructive: 0}\n";
    assert!(denied(size, "bob", "carol").await.is_empty());
    // Without a rule about approvals nobody asks who wrote it.
    assert!(denied(size, "carol", "carol").await.is_empty());
    let both = "policy: {max_destructive: 0, approvals: 1}\n";
    assert!(denied(both, "bob", "carol").await.is_empty());
    let own = denied(both, "carol", "carol").await;
    assert!(own.contains(&"policy.max_destructive".to_owned()), "{own:?}");
    assert!(own.contains(&"policy.approvals".to_owned()), "{own:?}");
    // Somebody whom the rules do not name allows nothing.
    let named = denied(
        "policy: {max_destructive: 0, reviewers: [dora]}\n",
        "bob",
        "carol",
    )
    .await;
    assert!(named.contains(&"policy.max_destructive".to_owned()), "{named:?}");
}
